import unittest

from stats import mean, median


class Stats(unittest.TestCase):
    def test_mean(self):
        self.assertEqual(mean([1, 2, 3]), 2)

    def test_median_of_an_odd_number_of_values(self):
        self.assertEqual(median([3, 1, 2]), 2)

    def test_median_of_an_even_number_of_values(self):
        self.assertEqual(median([4, 1, 3, 2]), 2.5)


if __name__ == "__main__":
    unittest.main()
