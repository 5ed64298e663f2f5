"""The tests of Python's multiprocessing with processes started by spawn."""

import test._test_multiprocessing

test._test_multiprocessing.install_tests_in_module_dict(globals(), "spawn")
