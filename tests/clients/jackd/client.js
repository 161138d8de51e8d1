// jackd, driven line by line: each line of input is {"call": METHOD, "args": [...]}, each of output {"result": ...} or
// {"error": CODE}. Payloads that come are told in Base64.
'use strict'

const readline = require('readline')
const Jackd = require('jackd')

const client = new Jackd()

function told (result) {
  if (result !== null && typeof result === 'object' && 'payload' in result) {
    return { id: result.id, payload: Buffer.from(result.payload).toString('base64') }
  }
  return result === client || result === undefined ? null : result
}

async function main () {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const { call, args } = JSON.parse(line)
    let answer
    try {
      answer = { result: told(await client[call](...args)) }
    } catch (error) {
      answer = { error: error.response || error.message }
    }
    process.stdout.write(JSON.stringify(answer) + '\n')
  }
  process.exit(0)
}

main()
