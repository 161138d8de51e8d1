// disqueue-node, driven line by line: each line of input is {"call": METHOD, "arg": ...}, each of output {"result": ...} or
// {"error": TEXT}. The argument of the program is the server's host:port.
'use strict'

const readline = require('readline')
const Disqueue = require('disqueue-node')

const [host, port] = process.argv[2].split(':')
const client = new Disqueue({ host, port: Number(port) })

function call (method, arg) {
  return new Promise((resolve) => {
    client[method](arg, (error, result) => {
      resolve(error ? { error: String(error.message || error) } : { result: result === undefined ? null : result })
    })
  })
}

async function main () {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const { call: method, arg } = JSON.parse(line)
    process.stdout.write(JSON.stringify(await call(method, arg)) + '\n')
  }
  process.exit(0)
}

client.on('connected', main)
