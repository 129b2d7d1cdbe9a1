#!/usr/bin/env node
import { runCli } from './cli.ts';
import { processIo } from './cli-io.ts';

process.exitCode = await runCli(process.argv.slice(2), processIo());
