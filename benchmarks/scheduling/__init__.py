"""Steps of training with two scheduling policies of Linux."""
