"""Steps of training with and without the settings of Linux that `initialize_processes` makes."""
