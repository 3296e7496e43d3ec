import ray


def load(shards, name):
    return len(shards) / shards.count(name)


@ray.remote(num_cpus=0, max_retries=0)
def prepare():
    return load(["a", "b"], "c")


print(ray.get(prepare.remote()))
