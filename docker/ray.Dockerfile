# Ray's image with debugpy, which Ray's own does not promise to hold: without debugpy 1.8.0 or newer
# on the node, breakpoint() returns at once and only the worker's log says why.
#
#   docker build -f docker/ray.Dockerfile -t ray-debugpy:2.60.0 docker
#   docker build -f docker/ray.Dockerfile --build-arg RAY_IMAGE=registry.example.com/our-ray:7 -t our-ray-debugpy:7 docker
ARG RAY_IMAGE=rayproject/ray:2.60.0
FROM ${RAY_IMAGE}
RUN pip install --no-cache-dir debugpy==1.8.22
