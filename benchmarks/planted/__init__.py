"""Small models whose needed heads are known, and how well each score of heads finds them."""
