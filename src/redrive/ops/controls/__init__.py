"""Controls of running work: pauses by hand, limits at run time, and schedules fired by hand."""
