/** Names inside SQL texts: every one is qualified, because a search path would be a setting of the session. */

export function quoted(name: string): string {
  return `"${name.replaceAll('"', '""')}"`;
}

const OWN_TABLES = {
  partitions: 'sync_partitions',
  registry: 'sync_partition_registry',
  commits: 'sync_commits',
  changes: 'sync_changes',
  changeScopes: 'sync_change_scopes',
  rowScopes: 'sync_row_scopes',
  results: 'sync_push_results',
  clients: 'sync_clients',
  bindings: 'sync_client_bindings',
  tombstones: 'sync_tombstones',
  schemaMeta: 'sync_schema_meta',
  segments: 'sync_segments',
  segmentBytes: 'sync_segment_bytes',
  storageVersion: 'sync_storage_version',
  checkpoints: 'sync_backfill_checkpoints',
  scans: 'sync_backfill_scans',
  writerFence: 'sync_writer_fence',
  /** A function. */
  checkpointsOf: 'sync_checkpoints_of',
} as const;

type OwnTables = { readonly [K in keyof typeof OWN_TABLES]: string };

/** The tables of one namespace, ready to stand in a statement. */
export interface Names extends OwnTables {
  /** Not quoted. */
  readonly namespace: string;
  /** Any table or index of the namespace. */
  qualified(name: string): string;
}

export function namesOf(namespace: string): Names {
  const qualified = (name: string): string => `${quoted(namespace)}.${quoted(name)}`;
  const own = Object.entries(OWN_TABLES).map(([key, name]) => [key, qualified(name)]);
  return { ...(Object.fromEntries(own) as OwnTables), namespace, qualified };
}
