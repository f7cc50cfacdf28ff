// Limits password attempts from one address, with hiredis (Debian: gcc, libhiredis-dev), which does
// not support clusters.
//
//   ratelimit deploy --redis redis://localhost:6379 --policies examples/policies.yaml
//   cc -o login examples/languages/login.c -lhiredis && REDIS_URL=redis://localhost:6379 ./login
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// All keys of a call share one hash tag, in braces, so that they are on the same node of a cluster.
#define ADDRESS "login:{203.0.113.7}"

typedef char request[80];

static void new_request(request r) {
	unsigned char random[16];
	FILE *source = fopen("/dev/urandom", "rb");
	if (source == NULL || fread(random, sizeof random, 1, source) != 1) {
		perror("/dev/urandom");
		exit(1);
	}
	fclose(source);
	int n = snprintf(r, sizeof(request), ADDRESS ":request:");
	for (size_t i = 0; i < sizeof random; i++) n += snprintf(r + n, sizeof(request) - n, "%02x", random[i]);
}

static redisContext *open_connection(void) {
	const char *url = getenv("REDIS_URL");
	char host[256];
	int port;
	if (url == NULL || sscanf(url, "redis://%255[^:/]:%d", host, &port) != 2) {
		fprintf(stderr, "REDIS_URL is to be redis://host:port\n");
		exit(1);
	}
	redisContext *c = redisConnectWithTimeout(host, port, (struct timeval){.tv_sec = 2});
	if (c == NULL || c->err || redisSetTimeout(c, (struct timeval){.tv_sec = 2}) != REDIS_OK) {
		fprintf(stderr, "%s\n", c ? c->errstr : "out of memory");
		exit(1);
	}
	return c;
}

// take asks for a decision. If the reply is lost, the call may have been charged. With ONCE it is safe to retry: for 60000 ms,
// retries of the same request are not charged again.
static redisReply *take(redisContext *c, const request r) {
	redisReply *reply = NULL;
	for (int attempts = 0; reply == NULL && attempts < 3; attempts++) {
		if (c->err) redisReconnect(c);
		reply = redisCommand(c, "FCALL ratelimit_take 2 %s %s @login ONCE 60000", ADDRESS, r);
	}
	if (reply == NULL) {
		fprintf(stderr, "%s\n", c->errstr);
		exit(1);
	}
	if (reply->type == REDIS_REPLY_ERROR) {
		fprintf(stderr, "%s\n", reply->str);
		if (strstr(reply->str, "Function not found") || strstr(reply->str, "RATELIMIT NOPOLICY"))
			fprintf(stderr, "run: ratelimit deploy --policies examples/policies.yaml\n");
		exit(1);
	}
	return reply;
}

static void tell(const char *when, redisReply *reply) {
	// allowed limit remaining retry_after_ms reset_after_ms index; later versions may add elements
	long long allowed = reply->element[0]->integer, limit = reply->element[1]->integer;
	long long remaining = reply->element[2]->integer, retry_after_ms = reply->element[3]->integer;
	if (allowed) printf("%s: allowed, %lld of %lld left\n", when, remaining, limit);
	else printf("%s: denied, try again in %lld s\n", when, (retry_after_ms + 999) / 1000);
	freeReplyObject(reply);
}

int main(void) {
	redisContext *c = open_connection();
	request r;
	new_request(r);
	tell("first", take(c, r));
	tell("asked again", take(c, r));
	for (int i = 0; i < 4; i++) {
		new_request(r);
		freeReplyObject(take(c, r));
	}
	new_request(r);
	tell("five later", take(c, r));
	redisFree(c);
}
