/** Runs that are kept: `bench/results.json` holds them, `bench/RESULTS.md` is made from it and never typed. */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { arch, cpus, loadavg, platform } from 'node:os';
import { fileURLToPath } from 'node:url';
import type { ScenarioReport } from './report.ts';

export interface RecordedRun {
  readonly command: string;
  readonly date: string;
  readonly machine: string;
  readonly node: string;
  /** One-minute load average when the run ended, the run itself included. */
  readonly load: number;
  readonly report: ScenarioReport;
}

const RUNS = fileURLToPath(new URL('results.json', import.meta.url));
const PAGE = fileURLToPath(new URL('RESULTS.md', import.meta.url));

/** The newest run of a command replaces the older one. */
export function recordRun({ command, report }: Pick<RecordedRun, 'command' | 'report'>): void {
  const runs: RecordedRun[] = existsSync(RUNS) ? JSON.parse(readFileSync(RUNS, 'utf8')) : [];
  const run: RecordedRun = {
    command,
    date: new Date().toISOString().slice(0, 16),
    machine: `${cpus().length} cores, ${platform()} ${arch()}`,
    node: process.version,
    load: Number(loadavg()[0]!.toFixed(1)),
    report,
  };
  const kept = [...runs.filter((older) => older.command !== command), run];
  kept.sort((a, b) => (a.command < b.command ? -1 : 1));
  writeFileSync(RUNS, `${JSON.stringify(kept, null, 2)}\n`);
  writeFileSync(PAGE, formatRuns(kept));
}

export function formatRuns(runs: readonly RecordedRun[]): string {
  const head = `# Bench results

Made by \`npm run bench -- SCENARIO ... --record\` from \`bench/results.json\`; do not edit. Generator, gateway and database share
the machine. Ratios are of one run; compare absolute figures only within one machine.
`;
  return [head, ...runs.map(formatRun)].join('\n');
}

function formatRun({ command, date, machine, node, load, report }: RecordedRun): string {
  const rows = Object.entries(report.figures).map(
    ([name, value]) => `| ${name} | ${typeof value === 'number' ? value.toLocaleString('en') : value} |`,
  );
  return [
    `## ${report.scenario}`,
    '',
    '```',
    command,
    '```',
    '',
    `${date} UTC, ${machine}, Node ${node}, load ${load}`,
    '',
    '| Figure | Value |',
    '| --- | --- |',
    ...rows,
    '',
  ].join('\n');
}
