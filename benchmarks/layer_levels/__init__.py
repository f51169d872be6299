"""The error of a level for each array, beside other selections of as many bytes."""
