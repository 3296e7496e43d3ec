"""For `ray job submit --working-dir tests/jobs/project -- python job.py`. RESULT 12."""
import ray
from pricing import total

ray.init()
print("RESULT", ray.get(ray.remote(num_cpus=0)(total).remote(4)), flush=True)
