"""Commands that control running work: pauses by hand and limits at run time."""
