# The image of ratelimit-gateway. container.sh builds the files to copy.
FROM scratch
COPY ca-certificates.crt /etc/ssl/certs/
COPY bin /bin
COPY ratelimit-gateway ratelimit-gateway_NOTICES.txt ratelimit-gateway.cdx.json /
USER 65532:65532
EXPOSE 8080 8081
HEALTHCHECK --interval=10s --timeout=5s CMD ["/ratelimit-gateway", "--health"]
ENTRYPOINT ["/ratelimit-gateway"]
