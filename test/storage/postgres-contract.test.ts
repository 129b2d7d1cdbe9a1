import { segmentsContract } from '../contract/segments.contract.ts';
import { storageContract } from '../contract/storage.contract.ts';
import { postgresPerFile } from './postgres-harness.ts';

const make = postgresPerFile();
storageContract('postgres', make);
segmentsContract('postgres', make);
