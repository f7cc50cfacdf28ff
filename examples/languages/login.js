// Limits password attempts from one address, with node-redis (Debian: node-redis; or npm install
// redis).
//
//   ratelimit deploy --redis redis://localhost:6379 --policies examples/policies.yaml
//   REDIS_URL=redis://localhost:6379 node examples/languages/login.js
//
// With REDIS_CLUSTER=1, REDIS_URL names any node of a cluster. If node does not come from Debian,
// set NODE_PATH=/usr/share/nodejs to use Debian's package.
const { randomUUID } = require('crypto')
const { createClient, createCluster, ErrorReply } = require('redis')

// All keys of a call share one hash tag, in braces, so that they are on the same node of a cluster.
const ADDRESS = 'login:{203.0.113.7}'

const newRequest = () => `${ADDRESS}:request:${randomUUID()}`

// node-redis 4 has no timeout for commands: without this one, a call waits for as long as the server hangs.
function within(ms, call) {
  let timer
  const late = new Promise((_, reject) => { timer = setTimeout(reject, ms, new Error(`no reply within ${ms} ms`)) })
  return Promise.race([call, late]).finally(() => clearTimeout(timer))
}

// Asks for a decision. If the reply is lost, the call may have been charged. With ONCE it is safe to retry: for 60000 ms,
// retries of the same request are not charged again.
async function take(client, request) {
  for (let attemptsLeft = 2; ; attemptsLeft--) {
    try {
      return await within(2000, client.fCall('ratelimit_take', { keys: [ADDRESS, request], arguments: ['@login', 'ONCE', '60000'] }))
    } catch (error) {
      if (/Function not found|RATELIMIT NOPOLICY/.test(error.message)) {
        throw new Error(`${error.message}\nrun: ratelimit deploy --policies examples/policies.yaml`)
      }
      if (error instanceof ErrorReply || attemptsLeft === 0) throw error
    }
  }
}

function told([allowed, limit, remaining, retryAfterMs, resetAfterMs, index]) { // later versions may add elements
  if (allowed) return `allowed, ${remaining} of ${limit} left`
  return `denied, try again in ${Math.ceil(retryAfterMs / 1000)} s`
}

async function main() {
  const url = process.env.REDIS_URL
  const socket = { reconnectStrategy: (times) => (times < 5 ? 100 : new Error('no server answers')) } // the default is to retry forever
  const client = process.env.REDIS_CLUSTER
    ? createCluster({ rootNodes: [{ url }], defaults: { socket } }) // discovers the other nodes from this one
    : createClient({ url, socket })
  client.on('error', () => {}) // the client reconnects by itself; the call in progress fails, and take retries it
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
