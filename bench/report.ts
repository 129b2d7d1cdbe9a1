/** Figures of a run: latency histograms and the table in the terminal. */
import { build, type Histogram } from 'hdr-histogram-js';

export type Figures = Readonly<Record<string, number | string>>;

export interface ScenarioReport {
  readonly scenario: string;
  readonly figures: Figures;
}

/** Microseconds in, milliseconds out. */
export class Latency {
  readonly #histogram: Histogram = build({ lowestDiscernibleValue: 1, highestTrackableValue: 60_000_000 });

  record(startMs: number, endMs: number): void {
    this.#histogram.recordValue(Math.max(1, Math.round((endMs - startMs) * 1_000)));
  }

  get count(): number {
    return this.#histogram.totalCount;
  }

  figures(name: string): Figures {
    const at = (percentile: number): number => this.#histogram.getValueAtPercentile(percentile) / 1_000;
    return {
      [`${name} p50 ms`]: round(at(50)),
      [`${name} p95 ms`]: round(at(95)),
      [`${name} p99 ms`]: round(at(99)),
      [`${name} max ms`]: round(this.#histogram.maxValue / 1_000),
    };
  }

  medianMs(): number {
    return this.#histogram.getValueAtPercentile(50) / 1_000;
  }
}

export function round(value: number): number {
  return Number(value.toPrecision(4));
}

export function formatReport({ scenario, figures }: ScenarioReport): string {
  const width = Math.max(...Object.keys(figures).map((name) => name.length));
  const lines = Object.entries(figures).map(
    ([name, value]) =>
      `  ${name.padEnd(width)}  ${typeof value === 'number' ? value.toLocaleString('en') : value}`,
  );
  return [`${scenario}`, ...lines, ''].join('\n');
}
