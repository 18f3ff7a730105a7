"""What heads do, told without a task: from attention, outputs and hidden states over some texts."""
