"""Long drills of the engines, and the short versions that the test run has."""
