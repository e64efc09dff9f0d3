"""What all commands share: options, output, progress, times."""
