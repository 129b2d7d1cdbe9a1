/** The command line. Flags, help and environment names come from `option-table.ts`. */
import { resolve } from 'node:path';
import { Command, CommanderError, Option } from 'commander';
import { SchemaError } from '../protocol/schema-problems.ts';
import { backfill } from './backfill-command.ts';
import { showCheckpoints } from './checkpoints-command.ts';
import { type CliIo, EXIT, type ExitCode } from './cli-io.ts';
import {
  type ConfigSources,
  type DataConfig,
  resolveBackfillConfig,
  resolveConfig,
  resolveDataConfig,
  resolveMigrationConfig,
  resolveSettings,
} from './config.ts';
import { ConfigError } from './config-error.ts';
import { readConfigFile } from './config-file.ts';
import { demo } from './demo/demo-command.ts';
import { type DevSettings, dev } from './dev.ts';
import { ReadinessError } from './ensure-ready.ts';
import { failureLine, secretsOf } from './failure-line.ts';
import { checkSchema, inspect, STANDARD_INPUT } from './inspect.ts';
import { migrate } from './migrate.ts';
import { envName, flagName, LIMIT_OPTIONS, OPTIONS, type OptionSpec } from './option-table.ts';
import { PACKAGE_VERSION } from './package-version.ts';
import { type RotationTarget, rotateEpoch } from './rotate-epoch.ts';
import { serve } from './serve.ts';

const EXIT_HELP = `
Exit codes:
  ${EXIT.ok}    success, also after a drain asked for by SIGINT or SIGTERM
  ${EXIT.failed}    the command ran and failed
  ${EXIT.misused}    the command line or the configuration is wrong; nothing was started
  ${EXIT.notReady}    serve refused to start; the phase says why: schema_compile, storage_migration, backfill_checkpoint
  130  a second signal cut the drain short
`;

/** Runs one command. Never throws; everything said goes through `io`. */
export async function runCli(args: readonly string[], io: CliIo): Promise<number> {
  let exitCode: ExitCode = EXIT.ok;
  let secrets: readonly string[] = [];
  const program = buildProgram(io, {
    finish: (code) => {
      exitCode = code;
    },
    hide: (found) => {
      secrets = found;
    },
  });
  try {
    await program.parseAsync(args, { from: 'user' });
    return exitCode;
  } catch (failure) {
    if (failure instanceof CommanderError) return failure.exitCode === 0 ? EXIT.ok : EXIT.misused;
    if (failure instanceof ConfigError || failure instanceof SchemaError) {
      io.stderr(`${failure.message}\n`);
      return EXIT.misused;
    }
    io.stderr(`tidegate: ${failureLine(failure, secrets)}\n`);
    if (!(failure instanceof ReadinessError)) return EXIT.failed;
    const { cause } = failure;
    io.stderr(cause instanceof SchemaError ? `${cause.message}\n` : `  ${failureLine(cause, secrets)}\n`);
    return EXIT.notReady;
  }
}

interface Run {
  readonly finish: (code: ExitCode) => void;
  /** Texts that no message of this run may hold. */
  readonly hide: (secrets: readonly string[]) => void;
}

function buildProgram(io: CliIo, run: Run): Command {
  const { finish } = run;
  const program = new Command('tidegate')
    .description('Realtime sync gateway: SSP2 over HTTP and WebSocket')
    .version(PACKAGE_VERSION)
    .addHelpText('after', EXIT_HELP);
  // Before the commands are made: they inherit both.
  program.exitOverride().configureOutput({ writeOut: io.stdout, writeErr: io.stderr });

  const serveCommand = program.command('serve').description('run a gateway from a configuration file');
  addConfigFlag(serveCommand);
  addFlags(serveCommand, [...OPTIONS, ...LIMIT_OPTIONS]);
  serveCommand.action(async () => {
    const config = await configFrom(serveCommand, { io, run, resolve: resolveConfig });
    finish(await serve(config, io));
  });
  addDataCommands(program, io, run);
  addBackfillCommand(program, io, run);

  const devCommand = program
    .command('dev')
    .description('run a gateway to try things on: embedded database, ready schema, two users');
  addFlags(
    devCommand,
    OPTIONS.filter(({ name }) => ['host', 'port', 'logLevel'].includes(name)),
  );
  devCommand.action(async () => {
    finish(await dev(devSettings(devCommand, io), io));
  });

  program
    .command('demo')
    .description('show two clients sharing a list: live edits, an offline conflict, convergence')
    .option('--url <url>', 'a running `tidegate dev`; default: a gateway of its own, in memory')
    .action(async (options: { readonly url?: string }) => finish(await demo(options, io)));

  program
    .command('inspect')
    .description('print an SSP2 message or a rows segment as JSON')
    .argument('<file>', 'the bytes; - reads standard input')
    .action(async (path: string) => finish(await inspect(locate(path, io), io)));

  const schemaCommand = program.command('schema').description('work with schema documents');
  schemaCommand
    .command('check')
    .description('say everything that is wrong with a schema document')
    .argument('<file>', 'the document as JSON')
    .action(async (path: string) => finish(await checkSchema(locate(path, io), io)));
  return program;
}

/** Commands that work on the data and serve nobody. */
function addDataCommands(program: Command, io: CliIo, run: Run): void {
  const migrateCommand = program
    .command('migrate')
    .description('bring the tables of the database to the running schema, and end')
    .option('--dry-run', 'print the SQL that would run, change nothing');
  addConfigFlag(migrateCommand);
  addFlags(migrateCommand, DATA_OPTIONS);
  migrateCommand.action(async ({ dryRun }: { readonly dryRun?: true }) => {
    const config = await configFrom(migrateCommand, { io, run, resolve: resolveMigrationConfig });
    run.finish(await migrate(config, dryRun === true ? 'show' : 'carry-out', io));
  });

  const rotateCommand = program
    .command('rotate-epoch')
    .description('after a restore from a backup: clients of a partition start afresh')
    .option('--partition <name>', 'the one to rotate')
    .option('--all', 'rotate every partition that the database knows');
  addConfigFlag(rotateCommand);
  addFlags(
    rotateCommand,
    DATA_OPTIONS.filter(({ name }) => name !== 'schema'),
  );
  rotateCommand.action(async (options: RotateOptions) => {
    const target = rotationTarget(options);
    const config = await configFrom(rotateCommand, { io, run, resolve: resolveDataConfig });
    run.finish(await rotateEpoch(config, target, io));
  });

  const checkpointsCommand = program
    .command('checkpoints')
    .description('list the backfills that the database knows, and how far they are')
    .option('--partition <name>', 'those of one partition')
    .option('--json', 'one JSON object per line');
  addConfigFlag(checkpointsCommand);
  addFlags(
    checkpointsCommand,
    DATA_OPTIONS.filter(({ name }) => name !== 'schema'),
  );
  checkpointsCommand.action(async ({ partition, json }: CheckpointsOptions) => {
    const config = await configFrom(checkpointsCommand, { io, run, resolve: resolveDataConfig });
    const format = json === true ? 'json' : 'table';
    run.finish(await showCheckpoints(config, { format, partition: partition ?? null }, io));
  });
}

function addBackfillCommand(program: Command, io: CliIo, run: Run): void {
  const command = program
    .command('backfill')
    .description('run the backfills that are pending, with the functions of the configuration module')
    .option('--partition <name>', 'those of one partition')
    .option('--name <checkpoint>', 'those of one name')
    .option('--concurrency <n>', 'partitions at a time', '2')
    .option('--declare', 'declare the checkpoints of the configuration first, without a new schema version');
  addConfigFlag(command);
  addFlags(command, [...DATA_OPTIONS, ...LIMIT_OPTIONS.filter((limit) => limit.name.startsWith('backfill'))]);
  command.action(async ({ partition, name, concurrency, declare }: BackfillOptions) => {
    if (!/^[1-9]\d{0,3}$/.test(concurrency))
      throw new ConfigError(['--concurrency must be a whole number from 1 to 9999']);
    const config = await configFrom(command, { io, run, resolve: resolveBackfillConfig });
    const declaring = declare === true ? 'declare' : 'as-declared';
    const chosen = { partition: partition ?? null, name: name ?? null };
    const choice = { ...chosen, concurrency: Number(concurrency), declaring } as const;
    run.finish(await backfill(config, choice, io));
  });
}

interface BackfillOptions {
  readonly partition?: string;
  readonly name?: string;
  readonly concurrency: string;
  readonly declare?: true;
}

const DATA_OPTIONS: readonly OptionSpec[] = OPTIONS.filter(({ group }) => group === 'data');

interface RotateOptions {
  readonly partition?: string;
  readonly all?: true;
}

interface CheckpointsOptions {
  readonly partition?: string;
  readonly json?: true;
}

/** Throws a `ConfigError`. */
function rotationTarget({ partition, all }: RotateOptions): RotationTarget {
  if (all === true && partition === undefined) return { kind: 'all' };
  if (all === undefined && partition !== undefined) return { kind: 'one', partition };
  throw new ConfigError(['either --partition or --all is needed, and only one of them']);
}

function addConfigFlag(command: Command): void {
  command.option('--config <file>', 'JSON, or a module with a default export (TIDEGATE_CONFIG)');
}

function addFlags(command: Command, specs: readonly OptionSpec[]): void {
  for (const spec of specs) {
    if (spec.reach !== 'everywhere') continue;
    const unit = spec.unit === null ? '' : `, ${spec.unit}`;
    const fallback =
      spec.default === null || String(spec.default) === '' ? '' : `; default ${spec.default}${unit}`;
    const option = new Option(`${flagName(spec)} <value>`, `${spec.sentence} (${envName(spec)}${fallback})`);
    command.addOption(spec.visibility === 'hidden' ? option.hideHelp() : option);
  }
}

/** By flag, as typed. The environment is read by `resolveConfig`, so that one place knows what wins. */
function givenFlags(command: Command): Record<string, string | undefined> {
  const given: Record<string, unknown> = command.opts();
  return Object.fromEntries(
    command.options.flatMap((option) => {
      const value = given[option.attributeName()];
      return option.long !== undefined && typeof value === 'string' ? [[option.long, value]] : [];
    }),
  );
}

function locate(path: string, { workingFolder }: CliIo): string {
  return path === STANDARD_INPUT ? path : resolve(workingFolder, path);
}

interface ConfigRequest<C> {
  readonly io: CliIo;
  readonly run: Run;
  readonly resolve: (sources: ConfigSources) => C;
}

async function configFrom<C extends DataConfig>(
  command: Command,
  { io, run, resolve: resolveFrom }: ConfigRequest<C>,
): Promise<C> {
  const flags = givenFlags(command);
  const path = flags['--config'] ?? io.env.TIDEGATE_CONFIG ?? '';
  const file = path === '' ? null : await readConfigFile(resolve(io.workingFolder, path));
  const config = resolveFrom({ flags, env: io.env, file, workingFolder: io.workingFolder });
  if (config.storage.kind === 'postgres') run.hide(secretsOf(config.storage.url));
  return config;
}

function devSettings(command: Command, io: CliIo): DevSettings {
  const { workingFolder, env } = io;
  return resolveSettings({ flags: givenFlags(command), env, file: null, workingFolder });
}
