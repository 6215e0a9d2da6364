"""What would run where, told before anything is compiled."""
