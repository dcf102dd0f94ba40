"""What was tried against the line, and refused; the count is printed at the end."""
import collections

counts = collections.Counter()


def attack(n=1, journalled=True):
    counts["attacks tried, all refused"] += n
    counts["with their entry in the journal"] += n * journalled
