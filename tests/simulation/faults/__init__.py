"""What goes wrong in a simulated cluster: one file for each part that fails."""
