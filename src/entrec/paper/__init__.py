"""The paper's experiments, one per file or folder; `entrec paper NAME` runs them."""
