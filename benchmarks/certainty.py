"""``python -m benchmarks.certainty``: how often what is said of head orders holds, simulated where
the truth is known. With ``joint``, ``search``, ``drops``, ``orders``, ``control`` or ``lambda`` one
part of it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import pandas
import torch
from transformers import GPT2Config, GPT2LMHeadModel

import papa
from papa.heads.substitutes import Substitute, Zeros
from papa.probes.training import SummedLoss
from papa.progress import Progress, ignore_progress
from papa.ranking.loss_scores import ExampleValues
from papa.ranking.redundancy import joint_effects_of_order
from papa.ranking.search import search_head_count
from papa.scores.drops import MaxDrop
from papa.scores.intervals import SeedScores
from papa.scores.levels import LEVEL
from papa.scores.order_comparison import agrees_more, compare_means, seed_agreement
from papa.scores.summary import summarise
from papa.scores.verdicts import drops_of_all_lines, heads_within
from papa.spec.columns import LINE
from papa.spec.orders import Head

HEADS = 72


def control_rows() -> Iterator[str]:
    """Yield how often true labels are significant beside shuffled ones, by the number of seeds.

    λ of a head is what text alone makes of it, what labels make of it, and a seed's noise.
    """
    for strength in (0.0, 0.5, 1.0):
        for seeds in (5, 7, 10, 20):
            numbers = np.random.default_rng(seeds)
            significant: list[bool] = []
            taus: list[list[float]] = []
            for _ in range(200):
                of_text, of_labels = 0.5 * numbers.standard_normal((2, HEADS))
                noise, other = numbers.standard_normal((2, seeds, HEADS))
                true = of_text + 2 * strength * of_labels + noise
                shuffled = of_text + other
                significant.append(agrees_more(true, shuffled))
                taus.append([float(seed_agreement(values, ())[0]) for values in (true, shuffled)])
            tau, shuffled_tau = np.mean(taus, axis=0)
            yield (
                f"{seeds} seeds, τ {tau:.2f} of true and {shuffled_tau:.2f} of shuffled labels: "
                f"significant in {np.mean(significant):.2f} of 200"
            )


def order_rows() -> Iterator[str]:
    """Yield how often an order is significant beside random lists, where it knows nothing or
    all.
    """
    for knows in (False, True):
        for critical in (1, 3, None):
            for orders, seeds in ((1, 5), (1, 10), (1, 19), (2, 39), (3, 59), (3, 119)):
                numbers = np.random.default_rng(seeds)
                counts = np.zeros(2)
                for _ in range(100):
                    family = random_family(numbers, orders, seeds, critical, knows)
                    tested = compare_means(family).items()
                    for with_random in (True, False):
                        counts[int(not with_random)] += any(
                            found["beyond_chance"]
                            for pair, found in tested
                            if ("random" in pair) == with_random
                        )
                yield (
                    f"{orders} orders, {seeds} random lists, {critical or 'all'} heads of 24 "
                    f"matter, {'the first order knows them' if knows else 'no order knows'}: a * "
                    f"beside random in {counts[0] / 100:.2f}, in other pairs in "
                    f"{counts[1] / 100:.2f} of 100 families"
                )


def random_family(
    numbers: np.random.Generator, orders: int, seeds: int, critical: int | None, knows: bool
) -> dict[str, SeedScores]:
    """Return scores on 300 examples of orders with one list of constant heads each, and of random
    ones with a list a seed. Six of 24 heads are constant. Each critical head loses .15 of the
    examples; or, where all matter, head n loses n/24 of .04. The first order may know them: it is
    the worst.
    """
    known = numbers.random(300) < 0.85
    share = np.linspace(0, 0.04, 24)
    if critical is not None:
        share = np.where(np.arange(24) >= 24 - critical, 0.15, 0.0)
    loses = numbers.random((24, 300)) < share[:, None]

    def score_of(constant: np.ndarray) -> tuple[float, np.ndarray]:
        right = (known & ~loses[constant].any(axis=0)).astype(float)
        return right.mean(), (right - right.mean()) / 299

    def measured(lists: list[np.ndarray]) -> SeedScores:
        found = [score_of(constant) for constant in lists]
        scores = {seed: score for seed, (score, _) in enumerate(found)}
        return SeedScores(scores, {seed: influence for seed, (_, influence) in enumerate(found)})

    drawn = [numbers.permutation(24)[:6] for _ in range(orders)]
    if knows:
        drawn[0] = np.arange(18, 24)
    lists = {f"order {number}": measured([one] * seeds) for number, one in enumerate(drawn)}
    random = measured([numbers.permutation(24)[:6] for _ in range(seeds)])
    return {**lists, "random": random}


def lambda_rows() -> Iterator[str]:
    """Yield how often λ's interval over seeds, of an in-memory model, holds its mean over all
    texts.
    """
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=99,
        n_embd=32,
        n_layer=2,
        n_head=4,
        n_positions=16,
        bos_token_id=0,
        eos_token_id=0,
        initializer_range=0.35,
    )
    model = GPT2LMHeadModel(config).eval()
    for texts, seeds in ((24, 3), (48, 3), (40, 5)):
        frames = []
        for seed in range(100):
            generator = torch.Generator().manual_seed(seed)
            ids = torch.randint(1, 99, (texts, 8), generator=generator)
            batches = [{"input_ids": ids}]
            scores = papa.head_scores(
                model, batches, method="lambda", ranking_seeds=range(seeds), progress=False
            )
            frames.append(scores)
        truth = np.mean([frame["score"] for frame in frames], axis=0)
        held = [(frame["low"] <= truth) & (truth <= frame["high"]) for frame in frames]
        yield f"{texts} texts, {seeds} seeds: λ's interval holds its mean in {np.mean(held):.2f}"


def drop_rows() -> Iterator[str]:
    """Yield how often any line allows heads that cost more than 1 %, at one and at many lines.

    Every line's second and third number of heads cost 1 % and a little more: the hardest case.
    """
    limit = MaxDrop.parse("1%", "max_drop")
    for lines in (1, 6, 12):
        numbers = np.random.default_rng(lines)
        errors = {"each line alone": 0, "all lines": 0}
        for _ in range(200):
            results = pandas.concat([drop_line(numbers, number) for number in range(lines)])
            for name, summary in (
                ("each line alone", summarise(results)),
                ("all lines", drops_of_all_lines(results)),
            ):
                verdicts = heads_within(summary, {}, limit)
                costly = verdicts["constant_heads"] > 8
                errors[name] += bool((verdicts["verdict"][costly] == "within").any())
        shares = ", ".join(f"{name} {count / 200:.3f}" for name, count in errors.items())
        yield f"{lines} lines: heads that cost more than 1 % are let go in: {shares} of 200 studies"


def drop_line(numbers: np.random.Generator, line: int) -> pandas.DataFrame:
    """Return results of five seeds on 2,000 examples with 0, 8, 16 and 24 constant heads.

    The original is right on 90 %; 16 and 24 heads lose 1.01 % of that, 8 heads nothing.
    """
    rows = []
    right = numbers.random(2_000) < 0.9
    changes = numbers.random(2_000)
    # Of every example, how sure the answer is: what 16 heads lose, 24 heads lose as well.
    for heads, lost, gained in (
        (0, 0.0, 0.0),
        (8, 0.01, 0.09),
        (16, 0.0201, 0.09),
        (24, 0.0201, 0.09),
    ):
        answers = np.where(right, changes >= lost, changes < gained)
        for seed in range(5):
            noisy = answers ^ (numbers.random(2_000) < 0.002)
            score = noisy.mean()
            rows.append(
                {
                    **dict(
                        zip(LINE, (f"encoder {line}", "task", "average", "lambda"), strict=True)
                    ),
                    "fraction": 1 - heads / 24,
                    "constant_heads": heads,
                    "heads": 24,
                    "seed": seed,
                    "metric": "accuracy",
                    "positive": "",
                    "score": score,
                    "influence": (noisy - score) / 1_999,
                    "always_one_answer": 0.5,
                    "one_answer": "",
                    "one_answer_influence": np.zeros(2_000),
                    "word_embeddings": np.nan,
                    "word_embeddings_influence": np.zeros(0),
                }
            )
    return pandas.DataFrame(rows)


@dataclass
class SimulatedLosses:
    """Losses of texts whose mean grows evenly with the number of heads, and which vary by text.

    Attributes:
        effects: The true effect of each number of heads, from 0.
        shares: Of each text its share of an effect; 1 on average, and most texts have little.
        noise: Of each text what more heads change besides.
        passes: How many losses were asked for.
    """

    effects: np.ndarray
    shares: np.ndarray
    noise: np.ndarray
    passes: int = 0

    def __call__(self, number: int, rows: np.ndarray) -> ExampleValues:
        """Return the losses of these texts with so many heads replaced."""
        self.passes += len(rows)
        changed = np.sqrt(number / (len(self.effects) - 1))
        sums = self.effects[number] * self.shares[rows] + changed * self.noise[rows]
        return ExampleValues(sums, np.ones(len(rows), dtype=np.int64))


def search_rows() -> Iterator[str]:
    """Yield how often a search of heads lets a set go that costs more than the limit, how many
    heads it finds, and its passes beside those of trying every number on all texts.

    Half of the numbers of heads cost more than the limit, the first of them 1 % more.
    """
    limit = 0.05
    searches = 400
    for heads, texts, noise in ((24, 256, 0.3), (72, 256, 0.3), (144, 512, 0.3), (72, 256, 0.1)):
        effects = np.linspace(0, 2 * limit, heads + 1)
        effects[effects > limit] += 0.01 * limit
        errors = 0
        passes = 0
        numbers_found: list[int] = []
        for seed in range(searches):
            generator = np.random.default_rng(seed)
            losses = SimulatedLosses(
                effects,
                shares=generator.lognormal(mean=-0.5, size=texts),
                noise=generator.normal(0, noise, size=texts),
            )
            original = losses(0, np.arange(texts))
            trials = search_head_count(losses, original, heads, limit, seed)
            within = [trial.head_count for trial in trials if trial.verdict == "within"]
            numbers_found.append(max(within, default=0))
            errors += bool(effects[numbers_found[-1]] > limit)
            passes += losses.passes
        largest = int(np.flatnonzero(effects <= limit).max())
        share = passes / searches / (texts * (heads + 1))
        yield (
            f"{heads} heads, {texts} texts, noise {noise}: {errors / searches:.3f} of {searches} "
            f"searches let a set go that costs more than the limit; {np.mean(numbers_found):.1f} "
            f"of {largest} heads found, by {share:.3f} of the passes of trying every number"
        )


class PlantedLosses:
    """Losses of texts that grow by the sum of what heads cost alone, and by pairs of heads that
    replace each other. ``papa.ranking.redundancy`` reads it as it does a model.

    Args:
        singles: What each head costs each text alone.
        pairs: What a text loses for each pair of neighbours that is replaced, beyond that.
        lengths: How many losses each text has.
        skews: What any other heads together cost a text beyond what they cost alone, whose mean is
            0: 1 where a few texts lose much, -1 where a few gain much, 0 where none does. Each set
            of heads draws one of these.
        generator: Of what other heads cost together.
    """

    by_text = True
    size = (1, 1)
    device = torch.device("cpu")

    def __init__(
        self,
        singles: np.ndarray,
        pairs: np.ndarray,
        lengths: np.ndarray,
        skews: Sequence[int],
        generator: np.random.Generator,
    ) -> None:
        self._singles = singles
        self._pairs = pairs
        self._lengths = lengths
        self._skews = skews
        self._generator = generator

    def gradient_batches(self, rows: np.ndarray) -> Iterator[np.ndarray]:
        """Yield nothing: no gradient is read."""
        yield from ()

    def summed(
        self, batch: np.ndarray, substitute: Substitute, heads: Sequence[Head]
    ) -> SummedLoss:
        """Refuse: no gradient is read."""
        raise NotImplementedError

    def values_of_sets(
        self,
        substitute: Substitute,
        head_sets: Sequence[Sequence[Head]],
        rows: np.ndarray,
        progress: Progress = ignore_progress,
    ) -> list[ExampleValues]:
        """Return the losses of these texts for each set of heads."""
        values: list[ExampleValues] = []
        for heads in head_sets:
            numbers = [head for _, head in heads]
            pairs = sum(head % 2 == 0 and head + 1 in numbers for head in numbers)
            mean_losses = self._singles[numbers].sum(axis=0) + pairs * self._pairs
            is_planted = len(numbers) == 2 and pairs
            if len(numbers) > 1 and not is_planted:
                mean_losses += self._together(len(mean_losses))
            sums = mean_losses[rows] * self._lengths[rows]
            values.append(ExampleValues(sums, self._lengths[rows]))
        return values

    def _together(self, texts: int) -> np.ndarray:
        """Return what heads that share nothing cost each text together: noise of mean 0."""
        noise = self._generator.normal(0, 0.02, texts)
        lognormal = self._generator.lognormal(-4.5, 1, texts)
        return noise + self._generator.choice(self._skews) * (lognormal - np.exp(-4.0))


JOINT_SKEWS = {
    "symmetric": (0,),
    "a few texts lose much": (1,),
    "a few texts gain much": (-1,),
    "a few texts lose or gain much": (-1, 1),
}
"""The shapes of what heads that share nothing cost each text together: ``PlantedLosses.skews``."""


def joint_rows() -> Iterator[str]:
    """Yield how often the interval of a redundancy holds the true one, how often heads are said to
    replace each other, where they do not and where they do, and the same of pairs.

    What a head costs a text is lognormal: most texts lose little, a few much. The order is random,
    as an order that other texts decided is independent of these.
    """
    studies = 1_000
    designs = product(((32, 8), (256, 36)), (0.0, 0.05), JOINT_SKEWS)
    for (texts, heads), cost, shape in designs:
        numbers = np.random.default_rng(texts)
        holds = 0
        more = 0
        less = 0
        studies_with_a_false_pair = 0
        redundant_pairs = 0
        redundant_pairs_found = 0
        for _ in range(studies):
            noise = numbers.normal(0, 0.02, (2 * heads, texts))
            singles = numbers.lognormal(-4, 1, (2 * heads, texts)) + noise
            pairs = cost * numbers.lognormal(-0.5, 1, texts) + numbers.normal(0, 0.02, texts)
            lengths = numbers.integers(1, 40, texts)
            order = [(0, int(head)) for head in numbers.permutation(2 * heads)]
            losses = PlantedLosses(singles, pairs, lengths, JOINT_SKEWS[shape], numbers)
            effects = joint_effects_of_order(losses, Zeros(), order, [0.5], np.arange(texts))
            chosen = [head for _, head in order[:heads]]
            true_pairs = sum(head % 2 == 0 and head + 1 in chosen for head in chosen)
            first_heads = effects.iloc[0]
            true_redundancy = true_pairs * cost
            holds += bool(
                first_heads["redundancy_low"] <= true_redundancy <= first_heads["redundancy_high"]
            )
            if first_heads["p"] < LEVEL:
                more += bool(first_heads["redundancy"] > 0)
                less += bool(first_heads["redundancy"] < 0)
            is_significant = (effects["p_holm"] < LEVEL) & (effects["redundancy"] > 0)
            is_redundant = [
                len(heads_of_set) == 2 and cost > 0 and _are_neighbours(*heads_of_set)
                for heads_of_set in effects["heads"]
            ]
            redundant_pairs += sum(is_redundant)
            redundant_pairs_found += int(is_significant[is_redundant].sum())
            studies_with_a_false_pair += bool((is_significant & ~np.array(is_redundant)).any())
        share_found = redundant_pairs_found / max(redundant_pairs, 1)
        yield (
            f"{heads} of {2 * heads} heads, {texts} texts, redundancy {cost} of a pair, {shape}: "
            f"the interval of all holds it in {holds / studies:.3f} of {studies} studies; together "
            f"they cost significantly more in {more / studies:.3f}, less in {less / studies:.3f}; "
            f"of 120 pairs a false one is named in {studies_with_a_false_pair / studies:.3f}, and "
            f"{share_found:.3f} of the redundant ones are"
        )


def _are_neighbours(first: Head, second: Head) -> bool:
    """Return whether two heads are one of the planted pairs."""
    return first[1] // 2 == second[1] // 2


PARTS = {
    "joint": joint_rows,
    "search": search_rows,
    "drops": drop_rows,
    "control": control_rows,
    "orders": order_rows,
    "lambda": lambda_rows,
}

if __name__ == "__main__":
    for part in sys.argv[1:] or PARTS:
        for row in PARTS[part]():
            print(row, flush=True)
