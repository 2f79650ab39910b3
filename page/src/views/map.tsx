// Every GPU as a cell, by domain of the network: on one canvas, and as a table for who needs one.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Fragmentation, GpuMap, MapNode } from "../answers";
import { BASE, useFollowed } from "../live";
import {
  countCells, endOfRow, findCell, findSpot, findTiles, group, headsWithin, IN_USE, layOut, NAME_HEIGHT, placeOf, spotsWithin, tellCell, tellCells, TILE,
  type Head, type Layout, type Spot, type Tiles,
} from "../map_layout";
import { Count, Filter, Gaps, isUnread, Link, Missing, Same, Table, Things, type Column } from "../parts";
import { go, place, setParams, to, toList } from "../route";
import { colours, resolve } from "../theme";

const MODES = ["tenant", "quota", "free", "health"];

export function MapView() {
  const { head, value, missing } = useFollowed({ topic: "map", path: "map" });
  const fragmentation = useFollowed({ topic: "fragmentation", path: "fragmentation" }).value;
  const params = place.value.params;
  const read = (name: string) => params.get(name) ?? "";
  const mode = MODES.includes(read("color")) ? read("color") : "tenant";
  const isTable = read("as") === "table";
  const models = useMemo(() => [...new Set(value?.nodes.map((node) => node.model))].sort(), [value]);
  const model = read("model");
  const nodes = useMemo(() => (value?.nodes ?? []).filter((node) => !model || node.model === model), [value, model]);
  if (!value) return <Missing message={missing} />;
  if (!value.nodes.length) {
    return <><Gaps gaps={head?.gaps} /><p class="empty">{isUnread(head?.gaps, "nodes") ? "Which nodes there are is not known." : "No node has GPUs."}</p></>;
  }
  const topologies = value.topologies.map((topology) => topology.name);
  const topology = Math.max(0, topologies.indexOf(read("topology")));
  const layers = value.topologies[topology]?.layers ?? [];
  const chosen = layers.indexOf(read("layer"));
  const depth = chosen < 0 ? layers.length : chosen + 1;
  return (
    <>
      <Gaps gaps={head?.gaps} />
      <FragmentationLine value={fragmentation} />
      <div class="filters">
        {topologies.length > 1 && <Filter label="Topology" value={topologies[topology] ?? ""} options={topologies} isChoice onChange={(text) => setParams({ topology: text })} />}
        {layers.length > 0 && <Filter label="Grouped by" value={layers[depth - 1] ?? ""} options={layers} isChoice onChange={(layer) => setParams({ layer })} />}
        <Filter label="Coloured by" value={mode} options={MODES} isChoice onChange={(color) => setParams({ color })} />
        {models.length > 1 && <Filter label="Model" value={read("model")} options={models} onChange={(model) => setParams({ model })} />}
        <button type="button" id="twin" aria-pressed={isTable} onClick={() => setParams({ as: isTable ? "" : "table" })}>
          {isTable ? "as a map" : "as a table"}
        </button>
      </div>
      <Legend map={value} mode={mode} nodes={nodes} />
      {isTable
        ? <MapTable map={value} nodes={nodes} mode={mode} topology={topology} />
        : <MapCanvas map={value} nodes={nodes} mode={mode} topology={topology} depth={depth} />}
      <Same command="koord fragments" url={`${BASE}/map`} />
    </>
  );
}

function FragmentationLine({ value }: { value: Fragmentation | null }) {
  if (!value?.models.length) return null;
  return (
    <ul class="plain fragments">
      {value.models.map((model) => (
        <li key={model.model}>
          <strong>{model.model}</strong>: <Count of={model.free} /> of <Count of={model.total} /> free on <Count of={model.nodes} /> nodes; room for{" "}
          {model.sizes.map((size, at) => (
            <span key={size.size}>
              {at > 0 && ", "}
              <Link href={toList("whatif", { shape: String(size.size) })}><Things of={size.placeable} what="pod" /> of {size.size}</Link>
              {size.lost > 0 && <span class="none"> ({size.ideal} if they were together)</span>}
            </span>
          ))}
        </li>
      ))}
    </ul>
  );
}

/** Return the cells of a node; who has them matters in two of the modes only. */
function cellsOf(node: MapNode, mode: string): string {
  if (mode === "quota") return node.quotas;
  return mode === "tenant" ? node.tenants : node.tenants.replace(/[A-Za-z0-9*%]/g, IN_USE);
}

function namesOf(map: GpuMap, mode: string): string[] {
  return mode === "quota" ? map.quotas : map.tenants;
}

const STATE_STYLES: Record<string, string> = {
  ".": "free", "%": "down", "~": "held", "+": "stranded", "!": "broken", "#": "down", "*": "others", [IN_USE]: "used",
};
const COLOURS = ["used", "held", "free", "stranded", "broken", "down", "others", "text", "soft", "bg", "bad"] as const;

/** Return a hue that a name always has. */
function hueOf(name: string): number {
  let hash = 2166136261;
  for (const letter of name) hash = Math.imul(hash ^ letter.charCodeAt(0), 16777619);
  return (hash >>> 0) % 360;
}

function colourOf(cell: string, map: GpuMap, mode: string, known: Record<string, string>): string {
  if (cell === ".") return known["free"] ?? "";
  if (mode === "free") return known["others"] ?? "";
  const style = STATE_STYLES[cell];
  if (style) return known[style] ?? "";
  const name = namesOf(map, mode)[map.letters.indexOf(cell)] ?? "";
  return `oklch(0.5 0.12 ${hueOf(name)})`;
}

const MOST_IN_LEGEND = 12;

function Legend(props: { map: GpuMap; mode: string; nodes: MapNode[] }) {
  const { map, mode } = props;
  const known = useMemo(() => resolve(COLOURS), [colours.value]);
  const shown = useMemo(
    () => [...countCells(props.nodes.map((node) => cellsOf(node, mode)))].sort((a, b) => b[1] - a[1]),
    [props.nodes, mode],
  );
  return (
    <ul class="legend">
      {shown.slice(0, MOST_IN_LEGEND).map(([cell, count]) => (
        <li key={cell}>
          <span class="key" style={{ background: colourOf(cell, map, mode, known) }}>{cell === "." ? "" : cell}</span>
          <strong><Count of={count} /></strong> {tellCell(map, cell, namesOf(map, mode))}
        </li>
      ))}
      {shown.length > MOST_IN_LEGEND && <li class="none">and {shown.length - MOST_IN_LEGEND} more</li>}
    </ul>
  );
}

interface Shown {
  map: GpuMap;
  nodes: MapNode[];
  mode: string;
  topology: number;
}

/** Only what is in sight is drawn, and something beyond it: a canvas of thousands of nodes is slow, and large. */
function MapCanvas(props: Shown & { depth: number }) {
  const { map, nodes, mode, topology, depth } = props;
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  const [tiles, setTiles] = useState<Tiles>({ first: 0, end: 0 });
  const [hint, setHint] = useState("");
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const observer = new ResizeObserver(() => setWidth(element.clientWidth));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  const layout = useMemo(() => layOut(width ? group(nodes, topology, depth) : [], width), [nodes, topology, depth, width]);
  const { height } = layout;
  useLayoutEffect(() => {
    const look = () => {
      const top = -(box.current?.getBoundingClientRect().top ?? 0);
      setTiles((before) => findTiles(before, top, top + window.innerHeight, height));
    };
    look();
    window.addEventListener("scroll", look, { passive: true });
    window.addEventListener("resize", look);
    return () => {
      window.removeEventListener("scroll", look);
      window.removeEventListener("resize", look);
    };
  }, [height]);
  const point = (event: MouseEvent) => {
    const { left, top } = box.current!.getBoundingClientRect();
    const [x, y] = [event.clientX - left, event.clientY - top];
    const spot = findSpot(layout, x, y);
    if (!spot) return { spot, text: "" };
    const at = findCell(layout, spot, x, y);
    const cell = cellsOf(spot.node, mode)[at];
    const who = cell === undefined ? tellCells(map, cellsOf(spot.node, mode), namesOf(map, mode)) : tellCell(map, cell, namesOf(map, mode));
    return { spot, text: `${spot.node.node} (${spot.node.state}): ${who}` };
  };
  const count = Math.max(0, tiles.end - tiles.first);
  const numbers = Array.from({ length: count }, (_, at) => tiles.first + at);
  return (
    <div class="map">
      <p class="hint" aria-hidden="true">{hint || "Point at a GPU; click to open its node."}</p>
      <div ref={box} class="sheet" role="img" style={{ height: `${height}px` }}
        aria-label={`${nodes.length} nodes with their GPUs; the same as a table: press t`}
        onMouseMove={(event) => setHint(point(event).text)} onMouseLeave={() => setHint("")}
        onClick={(event) => {
          const { spot } = point(event);
          if (spot) go(to("node", spot.node.node));
        }}>
        {width > 0 && numbers.map((number) => (
          <Tile key={number % count} map={map} layout={layout} mode={mode} width={width} top={number * TILE} />
        ))}
      </div>
    </div>
  );
}

interface Drawing {
  map: GpuMap;
  layout: Layout;
  mode: string;
  width: number;
  top: number;
}

/** What is to be drawn yet, one tile in each frame. */
const undrawn = new Set<() => void>();

function drawNext(): void {
  const [work] = undrawn;
  if (!work) return;
  undrawn.delete(work);
  work();
  if (undrawn.size) requestAnimationFrame(drawNext);
}

/** A part of the map, drawn again if what is on it is another. Its canvas is taken for another part when that comes in sight. */
function Tile(props: Drawing) {
  const { layout, mode, width, top } = props;
  const canvas = useRef<HTMLCanvasElement>(null);
  const cells = spotsWithin(layout, top, top + TILE).map(({ node, x, y }) => `${x} ${y} ${node.node} ${node.state} ${cellsOf(node, mode)}`);
  const heads = headsWithin(layout, top, top + TILE).map(({ text, note, y }) => `${y} ${text} ${note}`);
  const content = [...heads, ...cells, ...namesOf(props.map, mode), mode, layout.cell].join("\n");
  useEffect(() => {
    const work = () => {
      if (canvas.current) draw(canvas.current, props);
    };
    if (!undrawn.size) requestAnimationFrame(drawNext);
    undrawn.add(work);
    return () => void undrawn.delete(work);
  }, [content, width, top, colours.value]);
  return <canvas ref={canvas} />;
}

const FONT = "system-ui, 'DejaVu Sans', sans-serif";
const LETTERS = "10px ui-monospace, 'DejaVu Sans Mono', monospace";

/** Draw a part of a layout: cells colour by colour, what stands on them, and names. */
function draw(canvas: HTMLCanvasElement, { map, layout, mode, width, top }: Drawing): void {
  const pen = canvas.getContext("2d");
  if (!pen) return;
  const bottom = top + TILE;
  const scale = window.devicePixelRatio || 1;
  const pixels = [Math.floor(width * scale), Math.floor(TILE * scale)] as const;
  if (canvas.width !== pixels[0] || canvas.height !== pixels[1]) {
    [canvas.width, canvas.height] = pixels; // slow: memory is asked for
    Object.assign(canvas.style, { width: `${width}px`, height: `${TILE}px` });
  }
  canvas.style.top = `${top}px`;
  pen.setTransform(scale, 0, 0, scale, 0, -top * scale);
  pen.clearRect(0, top, width, TILE);
  const known = resolve(COLOURS);
  const size = layout.cell - (layout.isNamed ? 2 : 1);
  const spots = spotsWithin(layout, top, bottom);
  const runs = findRuns(layout, spots, mode);
  for (const [cell, places] of runs) {
    pen.fillStyle = colourOf(cell, map, mode, known);
    for (const { x, y, count } of places) pen.fillRect(x, y, count * layout.cell, size);
  }
  pen.fillStyle = known.bg;
  for (const x of findGaps(layout, width)) pen.fillRect(x + size, top, layout.cell - size, TILE);
  for (const [cell, places] of runs) {
    const isLetter = layout.isNamed && cell !== "." && mode !== "free";
    if (isLetter || cell === "!" || cell === "#") drawSigns(pen, layout.cell, size, places, isLetter ? cell : "", known.bg);
  }
  pen.textAlign = "left";
  pen.textBaseline = "alphabetic";
  drawHeads(pen, headsWithin(layout, top, bottom), known);
  if (!layout.isNamed) return;
  pen.font = `12px ${FONT}`;
  for (const { node, x, y } of spots) {
    pen.fillStyle = node.state === "Ready" ? known.text : known.bad;
    pen.fillText(fit(pen, node.node, layout.blockWidth - 10), x, y + NAME_HEIGHT - 5);
  }
}

/** Cells of one kind side by side. */
interface Run {
  x: number;
  y: number;
  count: number;
}

/** Return the runs of each kind of cells: most nodes are one run, so thousands of cells are few of them. */
function findRuns(layout: Layout, spots: Spot[], mode: string): Map<string, Run[]> {
  const runs = new Map<string, Run[]>();
  for (const spot of spots) {
    const cells = cellsOf(spot.node, mode);
    for (let at = 0, end = 0; at < cells.length; at = end) {
      const last = Math.min(cells.length, endOfRow(at));
      while (end < last && cells[end] === cells[at]) end += 1;
      const [x, y] = placeOf(layout, spot, at);
      const run = { x, y, count: end - at };
      const found = runs.get(cells[at]!);
      if (found) found.push(run);
      else runs.set(cells[at]!, [run]);
    }
  }
  return runs;
}

/** Return where cells begin in all blocks: behind each of them is a gap. */
function findGaps(layout: Layout, width: number): number[] {
  const gaps: number[] = [];
  for (let left = 0; left < width; left += layout.blockWidth) {
    for (let x = left; x < left + layout.blockWidth - layout.cell; x += layout.cell) gaps.push(x);
  }
  return gaps;
}

/** Draw a letter on each cell, or a line through it. */
function drawSigns(pen: CanvasRenderingContext2D, cell: number, size: number, runs: Run[], letter: string, mark: string): void {
  pen.fillStyle = letter ? "#fff" : mark;
  pen.font = LETTERS;
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  for (const { x, y, count } of runs) {
    for (let middle = x + size / 2; middle < x + count * cell; middle += cell) {
      if (letter) pen.fillText(letter, middle, y + size / 2 + 0.5);
      else pen.fillRect(middle - 0.5, y, 1, size);
    }
  }
}

/** Draw the names of domains. */
function drawHeads(pen: CanvasRenderingContext2D, heads: Head[], known: Record<(typeof COLOURS)[number], string>): void {
  for (const head of heads) {
    pen.font = `600 14px ${FONT}`;
    pen.fillStyle = known.text;
    pen.fillText(head.text, 0, head.y + 20);
    const end = pen.measureText(head.text).width + 10;
    pen.font = `13px ${FONT}`;
    pen.fillStyle = known.soft;
    pen.fillText(head.note, end, head.y + 20);
  }
}

function fit(pen: CanvasRenderingContext2D, text: string, width: number): string {
  if (pen.measureText(text).width <= width) return text;
  let end = text.length - 1;
  while (end > 1 && pen.measureText(`…${text.slice(-end)}`).width > width) end -= 1;
  return `…${text.slice(-end)}`;
}

function MapTable(props: Shown) {
  const { map, nodes, mode, topology } = props;
  const columns = useMemo((): Column<MapNode>[] => [
    { name: "Node", width: 12, cell: (row) => <Link href={to("node", row.node)}>{row.node}</Link> },
    { name: "Domain", width: 12, cell: (row) => row.domains[topology] || "–" },
    { name: "State", width: 7, cell: (row) => row.state },
    { name: "Model", width: 12, cell: (row) => row.model },
    { name: "GPUs", width: 4.2, isNumber: true, cell: (row) => row.gpus },
    { name: "Free", width: 4, isNumber: true, cell: (row) => row.free },
    { name: "Who has them", cell: (row) => tellCells(map, cellsOf(row, mode), namesOf(map, mode)) },
  ], [map, mode, topology]);
  const rows = useMemo(() => new Map(nodes.map((node) => [node.node, node])), [nodes]);
  const order = useMemo(() => [...rows.keys()], [rows]);
  return <Table label="Nodes with their GPUs" columns={columns} order={order} rows={rows} total={order.length} empty="No node is like that." />;
}
