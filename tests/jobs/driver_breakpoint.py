"""The driver itself at a breakpoint. RESULT 6."""
import harness


def main():
    harness.connect()
    harness.ready()
    total = sum([1, 2, 3])
    breakpoint()
    harness.result(total)


main()
