// nsqjs behind the commands of contract.py and upgrades.py.
'use strict'

const crypto = require('crypto')
const fs = require('fs')
const readline = require('readline')
const nsq = require('nsqjs')

const commands = {publish, 'keep-publishing': keepPublishing, consume, exchange}
commands[process.argv[2]](...process.argv.slice(3))

function fail(error) {
  console.error(error)
  process.exit(1)
}

function publish(topic, address, bodies, delayMs) {
  const [host, port] = address.split(':')
  const writer = new nsq.Writer(host, Number(port))
  const messages = JSON.parse(bodies)
  const answered = (error) => (error ? fail(error) : writer.close())
  writer.on('error', fail)
  writer.on('ready', () => {
    if (delayMs) writer.deferPublish(topic, messages, Number(delayMs), answered)
    else writer.publish(topic, messages.length > 1 ? messages : messages[0], answered)
  })
  writer.connect()
}

// Publishes numbers until standard input ends, each until it is acknowledged; prints those that were sent once and again.
function keepPublishing(text) {
  const {topic, nsqd} = JSON.parse(text)
  const acknowledged = []
  const again = []
  const ready = new Set()
  let turn = 0
  let ended = false
  process.stdin.on('end', () => (ended = true)).resume()

  const connect = (address) => {
    const [host, port] = address.split(':')
    const writer = new nsq.Writer(host, Number(port))
    let isLost = false
    const lost = () => {
      ready.delete(writer)
      if (!isLost) setTimeout(connect, 1000, address)
      isLost = true
    }
    writer.on('ready', () => ready.add(writer))
    writer.on('closed', lost)
    writer.on('error', lost)
    writer.connect()
  }

  const send = () => {
    const writers = [...ready]
    if (ended) {
      console.log(JSON.stringify({acknowledged, again}))
      process.exit(0)
    }
    if (writers.length === 0) return setTimeout(send, 10)
    const number = String(acknowledged.length)
    writers[turn++ % writers.length].publish(topic, number, (error) => {
      if (error) again.push(number)
      else acknowledged.push(number)
      setTimeout(send, 10)
    })
  }

  nsqd.forEach(connect)
  send()
}

function consume(text) {
  const options = JSON.parse(text)
  const deliveries = []
  let finished = 0
  const reader = new nsq.Reader(options.topic, options.channel, {
    nsqdTCPAddresses: options.nsqd || [],
    lookupdHTTPAddresses: options.lookupd || [],
    lookupdPollInterval: 1,
    lookupdPollJitter: 0.01,
    maxInFlight: 10,
    messageTimeout: 3000,
  })

  const finish = (message) => {
    message.finish()
    finished += 1
    if (finished === options.count) {
      setTimeout(() => {
        reader.close()
        console.log(JSON.stringify(deliveries))
        process.exit(0)
      }, 50)
    }
  }

  reader.on('error', fail)
  reader.on('message', (message) => {
    const body = message.body.toString()
    const first = message.attempts === 1
    deliveries.push({body, attempts: message.attempts, at: Number(process.hrtime.bigint()) / 1e9})
    if (body.startsWith('requeue') && first) message.requeue(0, false)
    else if (body.startsWith('touch')) {
      const touching = setInterval(() => message.touch(), 250)
      setTimeout(() => {
        clearInterval(touching)
        finish(message)
      }, 4250)
    } else if (!body.startsWith('stall') || !first) finish(message)
  })
  reader.connect()
}

function exchange(text) {
  const options = JSON.parse(text)
  const has = (name) => options.upgrades.includes(name)
  const upgrades = {tls: has('tls_v1'), snappy: has('snappy'), deflate: has('deflate')}
  if (options.secret) upgrades.authSecret = options.secret
  if (upgrades.tls) upgrades.ca = fs.readFileSync(options.ca)
  const [host, port] = options.nsqd.split(':')
  const lines = readline.createInterface({input: process.stdin})
  lines.on('close', () => process.exit(0))
  lines.once('line', (line) => {
    const bodies = JSON.parse(line).map((body) => Buffer.from(body, 'base64'))
    const writer = new nsq.Writer(host, Number(port), upgrades)
    const then = (next) => (error) => (error ? fail(error) : next())
    writer.on('error', fail)
    writer.on('ready', () => {
      writer.publish(
        options.topic,
        bodies[0],
        then(() => writer.publish(options.topic, bodies[1], then(() => writer.publish(options.topic, bodies.slice(2), then(read)))))
      )
    })
    writer.connect()

    const read = () => {
      const digests = []
      const reader = new nsq.Reader(options.topic, 'channel', {nsqdTCPAddresses: [options.nsqd], maxInFlight: 100, ...upgrades})
      reader.on('error', fail)
      reader.on('message', (message) => {
        digests.push(crypto.createHash('sha256').update(message.body).digest('hex'))
        message.finish()
        if (digests.length === bodies.length) console.log(JSON.stringify(digests))
      })
      reader.connect()
    }
  })
}
