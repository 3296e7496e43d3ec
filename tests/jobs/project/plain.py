"""For `ray job submit --working-dir tests/jobs/project -- python plain.py`: stops nowhere. RESULT 12."""
import ray

ray.init()


@ray.remote(num_cpus=0)
def total(count):
    return count * 3


print("RESULT", ray.get(total.remote(4)), flush=True)
