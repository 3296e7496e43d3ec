# Ray's image with debugpy, which Ray's own does not promise to hold: without debugpy 1.8.0 or newer
# on the node, breakpoint() returns at once and only the worker's log says why.
#
#   docker build -f docker/ray.Dockerfile -t ray-debugpy:2.60.0 docker
FROM rayproject/ray:2.60.0
RUN pip install --no-cache-dir debugpy==1.8.22
