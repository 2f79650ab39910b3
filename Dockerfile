# The image of the operators. Two stages, because what builds it must not be in it: the first one
# makes an environment from uv.lock, the second one is Python, that environment and nothing else.
#   make image     (pins the base image by digest; otherwise: docker build --tag NAME:TAG .)

# By tag or, better, by digest: python:3.13-slim-trixie@sha256:…
ARG BASE=python:3.13-slim-trixie

FROM ${BASE} AS build
WORKDIR /src
ENV UV_PROJECT_ENVIRONMENT=/opt/koord \
    UV_PYTHON_DOWNLOADS=never \
    UV_NO_CACHE=1 \
    UV_LINK_MODE=copy
COPY tools/uv.txt tools/
RUN python -m venv /opt/uv \
    && /opt/uv/bin/pip install --no-cache-dir --require-hashes --only-binary :all: -r tools/uv.txt
# Dependencies change less often than the sources, so they make a layer of their own. None of them
# is built here: what has no wheel would run its own code first.
COPY pyproject.toml uv.lock ./
RUN /opt/uv/bin/uv sync --frozen --no-default-groups --extra nvml --extra self-signed \
    --no-install-project --no-build --compile-bytecode
COPY README.md LICENSE ./
COPY operators operators
RUN /opt/uv/bin/uv sync --frozen --no-default-groups --extra nvml --extra self-signed --no-editable \
    --compile-bytecode
# The bill of materials, as installed: SPDX in JSON.
COPY tools/sbom.py tools/
RUN /opt/koord/bin/python tools/sbom.py koord-operators > /opt/koord/sbom.spdx.json

FROM ${BASE}
ARG BASE
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="koord-operators" \
      org.opencontainers.image.description="Koordinator's scheduling for AI and batch jobs as Kubernetes operators" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="${BASE}"
COPY --from=build /opt/koord /opt/koord
# Nothing is written at run time: the root file system may be read-only, and there is no home.
ENV PATH=/opt/koord/bin:/usr/local/bin:/usr/bin:/bin \
    HOME=/nonexistent \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
WORKDIR /
USER 65532:65532
ENTRYPOINT ["koord"]
CMD ["run"]
