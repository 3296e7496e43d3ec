"""Three tasks on different nodes that stop at a breakpoint; the result is 0 + 1 + 4."""

import ray


@ray.remote(scheduling_strategy="SPREAD")
def square(x: int) -> int:
    result = x * x
    breakpoint()
    return result


if __name__ == "__main__":
    ray.init()
    print("sum of squares:", sum(ray.get([square.remote(x) for x in range(3)])))
