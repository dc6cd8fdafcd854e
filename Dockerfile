# shipgen itself: docker build -t shipgen . && docker run --rm -v "$PWD:/work" shipgen validate policy.yaml
FROM python:3.13-slim AS build
WORKDIR /source
COPY pyproject.toml README.md ./
COPY templates templates
COPY shipgen shipgen
RUN python -m venv /opt/shipgen && /opt/shipgen/bin/pip install --no-cache-dir .

FROM python:3.13-slim
COPY --from=build /opt/shipgen /opt/shipgen
ENV PATH=/opt/shipgen/bin:$PATH
# Any user will do (`docker run --user`): nothing is written but into the directory that is mounted.
USER 65532:65532
WORKDIR /work
ENTRYPOINT ["shipgen"]
CMD ["--help"]
