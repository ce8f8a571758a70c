"""Wei, Xie and Ma 2021: head and prompt tuning."""
