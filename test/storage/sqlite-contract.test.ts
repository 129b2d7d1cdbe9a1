import { segmentsContract } from '../contract/segments.contract.ts';
import { storageContract } from '../contract/storage.contract.ts';
import { makeSqlite } from './sqlite-harness.ts';

storageContract('sqlite', () => makeSqlite());
segmentsContract('sqlite', () => makeSqlite());
