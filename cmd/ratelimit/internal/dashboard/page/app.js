'use strict'
// All text from servers is added to the page as text, never as HTML.

const $ = id => document.getElementById(id)
const whole = n => n.toLocaleString('en')
const perSecond = n => n === 0 ? '0' : n < 0.01 ? '<0.01' : n < 10 ? n.toFixed(2) : n < 100 ? n.toFixed(1) : whole(Math.round(n))

function ago(ms) {
  const s = Math.floor(ms / 1000)
  if (s < 1) return 'now'
  if (s < 60) return s + ' s'
  if (s < 3600) return Math.floor(s / 60) + ' min'
  if (s < 48 * 3600) return Math.floor(s / 3600) + ' h'
  return Math.floor(s / 86400) + ' d'
}

function span(ms) {
  return ms < 1000 ? ms + ' ms' : ms < 60000 ? (ms / 1000).toFixed(1) + ' s' : ago(ms)
}

// say changes an element's text only if it differs. Otherwise, the user would lose a selection, and a screen reader
// would read the text again.
function say(node, text) {
  if (node.textContent !== text) node.textContent = text
}

function make(name, text, className) {
  const node = document.createElement(name)
  if (text !== undefined) node.textContent = text
  if (className) node.className = className
  return node
}

// fill updates the rows of a table's body from a list. cells returns the strings of one row, its
// header first. Existing rows are reused, so that the focus does not move.
function fill(body, list, cells, decorate) {
  while (body.rows.length > list.length) body.deleteRow(-1)
  list.forEach((item, i) => {
    const texts = cells(item)
    let row = body.rows[i]
    if (!row) {
      row = body.insertRow()
      const columns = body.parentNode.tHead.rows[0].cells
      texts.forEach((_, n) => {
        const cell = make(n === 0 ? 'th' : 'td', '', columns[n].className)
        if (n === 0) cell.scope = 'row'
        row.append(cell)
      })
    }
    texts.forEach((text, n) => say(row.cells[n].firstElementChild || row.cells[n], text))
    if (decorate) decorate(row, item)
  })
}

// bars draws the allowed calls with the denied calls on top, shows the value of the highest bar, and labels the time axis.
// Each item of list has the time at_ms.
function bars(svg, list, places, unit, label) {
  const most = Math.max(...list.map(one => one.allowed + one.denied), 0)
  const width = 600 / places
  const rects = []
  list.forEach((one, i) => {
    const x = 600 - (list.length - i) * width
    let y = 120
    for (const kind of ['allowed', 'denied']) {
      const height = most ? 112 * one[kind] / most : 0
      y -= height
      if (!height) continue
      const rect = document.createElementNS('http://www.w3.org/2000/svg', 'rect')
      const box = { x, y, width: width * 0.85, height, class: kind }
      for (const name in box) rect.setAttribute(name, box[name])
      rects.push(rect)
    }
  })
  svg.replaceChildren(...rects)
  svg.setAttribute('aria-label', label)
  axis($(svg.id + '-axis'), list, places)
  say($(svg.id + '-most'), most ? '· the highest bar is ' + (Number.isInteger(most) ? whole(most) : perSecond(most)) + ' ' + unit : '')
}

// axis labels the times of up to three bars, the newest at the right end.
function axis(node, list, places) {
  const texts = []
  for (let i = 0; i < 3; i++) {
    const place = Math.round((places - 1) * i / 2) // from the left end
    const one = list[list.length - places + place]
    if (!one) continue
    const text = make('span', new Date(one.at_ms).toLocaleTimeString())
    const across = 100 * (place + 0.5) / places
    if (across < 10) text.style.left = 0
    else if (across > 90) text.style.right = 0
    else { text.style.left = across + '%'; text.className = 'middle' }
    texts.push(text)
  }
  if ([...node.children].map(text => text.textContent).join() !== texts.map(text => text.textContent).join()) node.replaceChildren(...texts)
}

let state
let chosen // the key in the panel below the table
let asked // the limiter in the panel
let entries = [] // in the order of the table

function show() {
  say($('servers'), state.servers)
  say($('looked'), state.looked_ms ? 'looked at ' + new Date(state.looked_ms).toLocaleTimeString() : '')
  faults(state.faults)
  const ofKeys = state.policies && !state.policies.length
  say($('calls-of'), ofKeys ? 'Of all keys that count usage, because the library has no policies.' : 'Of all policies, as the servers count them. A shadow denies nothing.')
  const now = ofKeys ? state.per_second : state.calls
  if (state.policies) {
    say($('allowed'), perSecond(now.allowed))
    say($('denied'), perSecond(now.denied))
  }
  if (state.keys || state.now_ms > 0) {
    say($('keys'), whole(state.keys) + ' keys, ' + perSecond(state.per_second.allowed) + ' calls allowed and ' + perSecond(state.per_second.denied) + ' denied a second.')
  }
  say($('progress'), state.progress + (state.refused ? ' ' + whole(state.refused) + ' keys may not be read by this user.' : ''))
  const points = state.points || []
  const last = points[points.length - 1]
  bars($('chart'), points, 150, 'a second', last
    ? 'Calls a second in the last ' + points.length + ' looks; now ' + perSecond(last.allowed) + ' allowed and ' + perSecond(last.denied) + ' denied'
    : 'no measurements yet')
  showTop()
  renew()
  showPolicies()
  fill($('nodes'), state.nodes || [], n => [n.addr, n.state, n.library, n.digest, n.role, n.server],
    (row, n) => { row.cells[1].className = n.good ? '' : 'bad' })
}

function faults(list) {
  const texts = list || []
  if ([...$('faults').children].map(p => p.textContent).join('\n') !== texts.join('\n')) {
    $('faults').replaceChildren(...texts.map(text => make('p', text)))
  }
}

function showTop() {
  const found = (state.top || {})[$('order').value] || []
  // While a row has the focus, the order of the rows does not change, only their numbers.
  const held = $('rows').contains(document.activeElement) && document.activeElement.matches(':focus-visible, :hover')
  if (held && entries.length) {
    const now = new Map(found.map(e => [e.shown + e.key, e]))
    entries = entries.map(e => now.get(e.shown + e.key) || e)
  } else {
    entries = found
  }
  fill($('rows'), entries,
    e => [e.shown, whole(e.allowed), whole(e.denied), perSecond(e.per_second.allowed), perSecond(e.per_second.denied), ago(state.now_ms - e.last_ms), ago(state.now_ms - e.first_ms)],
    (row, e) => {
      const head = row.cells[0]
      let button = head.querySelector('button')
      if (!button) {
        button = make('button', e.shown)
        button.type = 'button'
        button.addEventListener('click', () => ask(entries[row.sectionRowIndex]))
        head.replaceChildren(button)
      }
      button.disabled = !e.key
    })
  say($('none'), entries.length || state.progress || !state.now_ms ? '' : 'No key counts usage, or none for a day. Take with TRACK, or give a policy track: true.')
}

function showPolicies() {
  const list = state.policies || []
  fill($('policies'), list, p => {
    const all = p.allowed + p.denied
    const kind = p.part ? [p.part] : [p.canary_share_per_mille ? 'canary ' + p.canary_share_per_mille / 10 + '%' : '', p.shadow ? 'shadow' : p.canary_share_per_mille ? '' : 'enforced', p.track ? 'counts usage' : '']
    const would = p.shadow && p.denied ? 'would ' : '' // a shadow denied nothing
    return ['@' + p.name, p.limits.join(' · '), kind.filter(text => text).join(', ')].concat(p.counted
      ? [whole(p.allowed), would + whole(p.denied), all ? would + (100 * p.denied / all).toFixed(1) : '', perSecond(p.per_second.allowed), would + perSecond(p.per_second.denied)]
      : ['', '', '', '', ''])
  })
  const notes = [
    list.length || !state.policies ? '' : 'The library has no policies.',
    state.more_policies ? 'and ' + whole(state.more_policies) + ' more.' : '',
    (state.uncounted || []).length && list.length ? 'The library is too old to count calls on ' + state.uncounted.join(', ') + '.' : '',
  ]
  say($('no-policies'), notes.filter(text => text).join(' '))
}

async function get(path, values) {
  try {
    const reply = await fetch(path + '?' + new URLSearchParams(values))
    if (reply.headers.get('Content-Type') !== 'application/json') return { error: await reply.text() }
    return await reply.json()
  } catch {
    return { error: 'the dashboard does not answer; is it still running?' }
  }
}

// ask shows the usage of one key by minute, and renew keeps it up to date.
async function ask(entry) {
  chosen = entry
  await showUsage(entry)
  if (chosen === entry) $('usage').focus()
}

async function showUsage(entry) {
  const u = await get('usage', { key: entry.key })
  if (chosen !== entry) return // another key was chosen meanwhile
  $('usage').hidden = false
  say($('usage-title'), entry.shown)
  const series = u.series || []
  say($('usage-sum'), u.error || whole(u.allowed) + ' allowed, ' + whole(u.denied) + ' denied, cost ' + whole(u.cost) +
    (u.first_ms ? ', from ' + new Date(u.first_ms).toLocaleString() + ' to ' + new Date(u.last_ms).toLocaleString() : ''))
  const start = series.length ? series[series.length - 1].start_ms - 59 * u.interval_ms : 0
  const minutes = Array.from({ length: 60 }, (_, i) => ({ allowed: 0, denied: 0, ...series.find(m => m.start_ms === start + i * u.interval_ms), at_ms: start + i * u.interval_ms }))
  bars($('series'), minutes, 60, 'in a minute', 'Calls by minute, for the last hour with a call; the table below has the numbers')
  fill($('minutes'), series.slice().reverse(), m => [new Date(m.start_ms).toLocaleTimeString(), whole(m.allowed), whole(m.denied)])
}

// renew reads the displayed usage and limiter again. A slow reply delays only the next read.
let renewing = false
async function renew() {
  if (renewing) return
  renewing = true
  if (chosen) await showUsage(chosen)
  if (asked) await peek(asked, false)
  renewing = false
}

// peek shows the state of a limiter. A screen reader announces it only if the user asked for it.
async function peek(question, loud) {
  const { keys, limit } = question
  const d = await get('peek', keys.map(key => ['key', key]).concat([['limit', limit]]))
  if (asked !== question) return // another question was asked meanwhile
  $('answer').setAttribute('aria-live', loud ? 'polite' : 'off')
  if (d.error) {
    $('answer').replaceChildren(make('p', d.error, 'bad'))
    return
  }
  const sum = make('p', (d.allowed ? 'The next call is allowed' : 'The next call is denied') + ': ' + whole(d.remaining) + (d.remaining > d.limit ? '' : ' of ' + whole(d.limit)) + ' left' + (d.allowed ? ' after it' : '') +
    (keys.length > 1 ? ' for ' + d.key : '') +
    (d.retry_after_ms > 0 ? (d.allowed ? ', to go ahead in ' : ', allowed in ') + span(d.retry_after_ms) : '') +
    (d.reset_after_ms > 0 ? ', full again in ' + span(d.reset_after_ms) : ', full now') +
    (d.shadow ? '; without its shadow it would be ' + (d.shadow.allowed ? 'allowed' : 'denied') : '') + '.')
  const meter = make('meter')
  meter.max = d.limit
  meter.value = d.remaining
  meter.setAttribute('aria-label', 'left')
  $('answer').replaceChildren(sum, meter)
}

$('order').addEventListener('change', () => state && showTop())
$('ask').addEventListener('submit', event => {
  event.preventDefault()
  asked = { keys: $('limiter').value.split('\n').filter(key => key !== ''), limit: $('limit').value }
  peek(asked, true)
})

const events = new EventSource('events')
events.onmessage = event => {
  state = JSON.parse(event.data)
  show()
}
events.onerror = () => {
  if (events.readyState === EventSource.CLOSED) faults(['The dashboard refuses this page. Open the address that it printed when it started, or close other pages.'])
  else faults(['The dashboard does not answer; is it still running? Trying again.'])
}
