/**
 * A decoded map. It inherits nothing, so that no key of a peer meets a member of `Object.prototype`; unlike an object made
 * by `Object.create(null)` it has a hidden class, which makes filling it four times faster (measured, Node 20).
 */
export class MapEntries<T> {
  [key: string]: T;
}
Object.setPrototypeOf(MapEntries.prototype, null);
Reflect.deleteProperty(MapEntries.prototype, 'constructor');
