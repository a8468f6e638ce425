"""Analysis of stacks of retry layers: worst cases, owners of errors, and advice."""
