// Where the cells of the map are: nodes in rows, by domain of the network. Draws nothing.
import type { GpuMap, MapNode } from "./answers";

export interface Spot {
  node: MapNode;
  x: number;
  y: number;
}

export interface Head {
  text: string;
  note: string;
  y: number;
}

export interface Layout {
  spots: Spot[];
  heads: Head[];
  height: number;
  /** Of a cell with the gap beside it. */
  cell: number;
  /** Whether there is room for the names of nodes. */
  isNamed: boolean;
  blockWidth: number;
  blockHeight: number;
}

export const NAME_HEIGHT = 16;
const HEAD_HEIGHT = 30;
const GAP = 12;
const LARGE_CELL = 15;
const SMALL_CELL = 8;
const MOST_NAMED = 600;
const WIDEST = 16;

export interface Group {
  name: string;
  nodes: MapNode[];
}

const BY_NUMBER = new Intl.Collator("en", { numeric: true });

/** Put nodes that share a domain of a layer together; without a layer all are one group. */
export function group(nodes: MapNode[], topology: number, depth: number): Group[] {
  const groups = new Map<string, MapNode[]>();
  const names = new Map<string, string>();
  for (const node of nodes) {
    const path = node.domains[topology] ?? "";
    const name = names.get(path) ?? (depth ? path.split("/").slice(0, depth).join("/") : "");
    names.set(path, name);
    const members = groups.get(name);
    if (members) members.push(node);
    else groups.set(name, [node]);
  }
  return [...groups].map(([name, members]) => ({ name, nodes: members }))
    .sort((a, b) => Number(!a.name) - Number(!b.name) || BY_NUMBER.compare(a.name, b.name));
}

export function layOut(groups: Group[], width: number): Layout {
  const count = groups.reduce((sum, each) => sum + each.nodes.length, 0);
  const isNamed = count <= MOST_NAMED;
  const cell = isNamed ? LARGE_CELL : SMALL_CELL;
  const most = Math.max(1, ...groups.flatMap((each) => each.nodes.map((node) => node.tenants.length)));
  const columns = Math.min(most, WIDEST);
  const blockWidth = columns * cell + GAP;
  const blockHeight = Math.ceil(most / columns) * cell + (isNamed ? NAME_HEIGHT : 0) + GAP / 2;
  const across = Math.max(1, Math.floor((width + GAP) / blockWidth));
  const spots: Spot[] = [];
  const heads: Head[] = [];
  let y = 0;
  for (const { name, nodes } of groups) {
    if (name || groups.length > 1) {
      const free = nodes.reduce((sum, node) => sum + node.free, 0);
      const all = nodes.reduce((sum, node) => sum + node.gpus, 0);
      heads.push({ text: name || "in no domain", note: `${free} of ${all} free`, y });
      y += HEAD_HEIGHT;
    }
    nodes.forEach((node, at) => {
      spots.push({ node, x: (at % across) * blockWidth, y: y + Math.floor(at / across) * blockHeight });
    });
    y += Math.ceil(nodes.length / across) * blockHeight + GAP / 2;
  }
  return { spots, heads, height: Math.max(y, 1), cell, isNamed, blockWidth, blockHeight };
}

/** Return the spot at a point, if there is one. */
export function findSpot(layout: Layout, x: number, y: number): Spot | undefined {
  return spotsWithin(layout, y, y + 1).find((spot) => (
    x >= spot.x && x < spot.x + layout.blockWidth && y >= spot.y && y < spot.y + layout.blockHeight
  ));
}

/** Return the spots of which some is between two heights; they are in order of theirs. */
export function spotsWithin({ spots, blockHeight }: Layout, top: number, bottom: number): Spot[] {
  return spots.slice(firstBehind(spots, top - blockHeight), firstBehind(spots, bottom));
}

/** Return the heads of which some is between two heights. */
export function headsWithin({ heads }: Layout, top: number, bottom: number): Head[] {
  return heads.filter(({ y }) => y < bottom && y + HEAD_HEIGHT > top);
}

/** Return the number of the first spot that begins behind a height. */
function firstBehind(spots: Spot[], y: number): number {
  let [low, high] = [0, spots.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (spots[middle]!.y > y) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** A layout is drawn in tiles of this height, in pixels: so little is drawn at a time, and only where something changed. */
export const TILE = 320;

/** Numbers of tiles, from the first to the one behind the last. */
export interface Tiles {
  first: number;
  end: number;
}

/** Return the tiles of a layout of which something is in sight, and one more on either side; as before, if they are the same. */
export function findTiles(before: Tiles, top: number, bottom: number, height: number): Tiles {
  const first = Math.max(0, Math.floor(top / TILE) - 1);
  const end = Math.min(Math.ceil(height / TILE), Math.max(first, Math.ceil(bottom / TILE) + 1));
  return first === before.first && end === before.end ? before : { first, end };
}

/** Return the number of the cell of a spot at a point; -1 if there is none. */
export function findCell(layout: Layout, spot: Spot, x: number, y: number): number {
  const top = spot.y + (layout.isNamed ? NAME_HEIGHT : 0);
  const [column, row] = [Math.floor((x - spot.x) / layout.cell), Math.floor((y - top) / layout.cell)];
  const at = row * WIDEST + column;
  return row < 0 || column >= WIDEST || at >= spot.node.tenants.length ? -1 : at;
}

/** Return the number of the first cell in the row below that of a cell. */
export function endOfRow(at: number): number {
  return (Math.floor(at / WIDEST) + 1) * WIDEST;
}

export function placeOf(layout: Layout, spot: Spot, at: number): [number, number] {
  const top = spot.y + (layout.isNamed ? NAME_HEIGHT : 0);
  return [spot.x + (at % WIDEST) * layout.cell, top + Math.floor(at / WIDEST) * layout.cell];
}

/** A cell that somebody uses, where it does not matter who. */
export const IN_USE = "-";

const STATES: Record<string, string> = {
  ".": "free", [IN_USE]: "in use", "%": "used in part", "~": "held by a reservation", "+": "stranded", "!": "broken",
  "#": "on a node that is down", "*": "used by others",
};

/** Say what a cell is: who has it, or why nobody has. */
export function tellCell(map: GpuMap, cell: string, names: string[]): string {
  return STATES[cell] ?? names[map.letters.indexOf(cell)] ?? "used";
}

/** Count cells of each kind. */
export function countCells(texts: Iterable<string>): Map<string, number> {
  const counts = new Map<string, number>();
  for (const cells of texts) {
    for (let at = 0, end = 0; at < cells.length; at = end) {
      const cell = cells[at]!;
      while (end < cells.length && cells[end] === cell) end += 1;
      counts.set(cell, (counts.get(cell) ?? 0) + end - at);
    }
  }
  return counts;
}

/** Say how many cells are of whom. */
export function tellCells(map: GpuMap, cells: string, names: string[]): string {
  return [...countCells([cells])].map(([cell, count]) => `${count} ${tellCell(map, cell, names)}`).join(", ");
}
