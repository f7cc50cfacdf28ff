// Password attempts from one address, limited with node-redis (Debian: node-redis; or npm install redis).
//
//   ratelimit deploy --redis redis://localhost:6379 --policies examples/policies.yaml
//   REDIS_URL=redis://localhost:6379 node examples/languages/login.js
//
// With REDIS_CLUSTER=1 the server is any node of a cluster. A node that is not Debian's finds Debian's package with
// NODE_PATH=/usr/share/nodejs.
const { randomUUID } = require('crypto')
const { createClient, createCluster, ErrorReply } = require('redis')

// What one call names has one hash tag, in braces, so that a cluster keeps it on one node.
const ADDRESS = 'login:{203.0.113.7}'

const newRequest = () => `${ADDRESS}:request:${randomUUID()}`

// Asks for a decision. A call whose reply got lost may have been charged; with ONCE it can be asked again, since a request
// is charged once, however often it is asked for in the next 60000 ms.
async function take(client, request) {
  for (let attemptsLeft = 2; ; attemptsLeft--) {
    try {
      return await client.fCall('ratelimit_take', { keys: [ADDRESS, request], arguments: ['@login', 'ONCE', '60000'] })
    } catch (error) {
      if (/Function not found|RATELIMIT NOPOLICY/.test(error.message)) {
        throw new Error(`${error.message}\nrun: ratelimit deploy --policies examples/policies.yaml`)
      }
      if (error instanceof ErrorReply || attemptsLeft === 0) throw error
    }
  }
}

function told([allowed, limit, remaining, retryAfterMs, resetAfterMs, index]) { // later versions may add to it
  if (allowed) return `allowed, ${remaining} of ${limit} left`
  return `denied, try again in ${Math.ceil(retryAfterMs / 1000)} s`
}

async function main() {
  const url = process.env.REDIS_URL
  const socket = { reconnectStrategy: (times) => (times < 5 ? 100 : new Error('no server answers')) } // else it tries for ever
  const client = process.env.REDIS_CLUSTER
    ? createCluster({ rootNodes: [{ url }], defaults: { socket } }) // learns of the other nodes from this one
    : createClient({ url, socket })
  client.on('error', () => {}) // it connects again by itself, and the call that was under way fails: see take
  await client.connect()
  const request = newRequest()
  console.log('first:', told(await take(client, request)))
  console.log('asked again:', told(await take(client, request)))
  let reply
  for (let i = 0; i < 5; i++) reply = await take(client, newRequest())
  console.log('five later:', told(reply))
  await client.disconnect()
}

main().catch((error) => {
  console.error(error.message)
  process.exit(1)
})
