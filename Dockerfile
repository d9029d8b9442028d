# A server on CPUs. See docs/install.md; `make test-image` builds and tries it.
FROM python:3.12-slim AS build
WORKDIR /src
COPY . .
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.12-slim
RUN useradd --create-home rl
COPY --from=build /wheels /wheels
# The builds of torch for CPUs alone are much smaller: give their index as TORCH_INDEX.
ARG TORCH_INDEX=""
RUN pip install --no-cache-dir ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} "torch==2.13.0" \
    && pip install --no-cache-dir "$(ls /wheels/*.whl)[local]"
USER rl
WORKDIR /home/rl
# Made here so that a volume mounted on it belongs to the user.
RUN mkdir -m 700 .openclaw-rl
VOLUME /home/rl/.openclaw-rl
EXPOSE 30000
# The container's own network: publish the port on 127.0.0.1, or behind a proxy that does TLS.
ENTRYPOINT ["openclaw-rl"]
CMD ["serve", "--host", "0.0.0.0", "--plain-public"]
STOPSIGNAL SIGTERM
HEALTHCHECK --start-period=120s CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:30000/healthz', timeout=5)"]
