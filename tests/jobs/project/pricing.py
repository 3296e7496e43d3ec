"""Part of the job of working_dir.py."""


def total(count):
    price = 3
    breakpoint()
    return count * price
