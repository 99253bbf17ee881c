"""Studies: settings searched on validation images, by Optuna, in one process or many."""
