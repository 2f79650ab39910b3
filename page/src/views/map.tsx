// Every GPU as a cell, by domain of the network: on one canvas, and as a table for who needs one.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Fragmentation, GpuMap, MapNode } from "../answers";
import { BASE, useFollowed } from "../live";
import { findCell, findSpot, group, IN_USE, layOut, NAME_HEIGHT, placeOf, tellCell, tellCells, type Layout, type Spot } from "../map_layout";
import { Count, Filter, Gaps, isUnread, Link, Missing, Same, Table, Things, type Column } from "../parts";
import { go, place, setParams, to, toList } from "../route";
import { colours, resolve } from "../theme";

const MODES = ["tenant", "quota", "free", "health"];

export function MapView() {
  const { head, value, missing } = useFollowed<GpuMap>({ topic: "map", path: "map" });
  const params = place.value.params;
  const read = (name: string) => params.get(name) ?? "";
  const mode = MODES.includes(read("color")) ? read("color") : "tenant";
  const isTable = read("as") === "table";
  const models = useMemo(() => [...new Set(value?.nodes.map((node) => node.model))].sort(), [value]);
  const nodes = useMemo(
    () => (value?.nodes ?? []).filter((node) => !read("model") || node.model === read("model")),
    [value, read("model")],
  );
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
      <FragmentationLine />
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

function FragmentationLine() {
  const { value } = useFollowed<Fragmentation>({ topic: "fragmentation", path: "fragmentation" });
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
  const counts = new Map<string, number>();
  for (const node of props.nodes) {
    for (const cell of cellsOf(node, mode)) counts.set(cell, (counts.get(cell) ?? 0) + 1);
  }
  const shown = [...counts].sort((a, b) => b[1] - a[1]);
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

function MapCanvas(props: Shown & { depth: number }) {
  const { map, nodes, mode, topology, depth } = props;
  const canvas = useRef<HTMLCanvasElement>(null);
  const box = useRef<HTMLDivElement>(null);
  const drawn = useRef<{ key: string; cells: Map<string, string> }>({ key: "", cells: new Map() });
  const [width, setWidth] = useState(0);
  const [hint, setHint] = useState("");
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const observer = new ResizeObserver(() => setWidth(element.clientWidth));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  const layout = useMemo(() => layOut(group(nodes, topology, depth), width || 1), [nodes, topology, depth, width]);
  useEffect(() => {
    const element = canvas.current;
    if (!element || !width) return undefined;
    const names = nodes.map((node) => node.node).join();
    const key = [width, layout.height, mode, topology, depth, colours.value, names].join();
    const known = resolve(COLOURS);
    if (drawn.current.key !== key) {
      clear(element, layout, width, known);
      drawn.current = { key, cells: new Map() };
    }
    // A part in each frame, so that a large map holds nobody up.
    const { cells } = drawn.current;
    let [at, frame] = [0, 0];
    const step = () => {
      at = draw(element, layout, map, mode, cells, known, at);
      if (at < layout.spots.length) frame = window.requestAnimationFrame(step);
    };
    step();
    return () => window.cancelAnimationFrame(frame);
  }, [layout, mode, colours.value]);
  const point = (event: MouseEvent) => {
    const spot = findSpot(layout, event.offsetX, event.offsetY);
    if (!spot) return { spot, text: "" };
    const at = findCell(layout, spot, event.offsetX, event.offsetY);
    const cell = cellsOf(spot.node, mode)[at];
    const who = cell === undefined ? tellCells(map, cellsOf(spot.node, mode), namesOf(map, mode)) : tellCell(map, cell, namesOf(map, mode));
    return { spot, text: `${spot.node.node} (${spot.node.state}): ${who}` };
  };
  return (
    <div ref={box} class="map">
      <p class="hint" aria-hidden="true">{hint || "Point at a GPU; click to open its node."}</p>
      <canvas ref={canvas} role="img" aria-label={`${nodes.length} nodes with their GPUs; the same as a table: press t`}
        onMouseMove={(event) => setHint(point(event).text)} onMouseLeave={() => setHint("")}
        onClick={(event) => {
          const { spot } = point(event);
          if (spot) go(to("node", spot.node.node));
        }} />
    </div>
  );
}

type Colours = Record<(typeof COLOURS)[number], string>;

/** Nodes that are drawn in one frame. */
const AT_ONCE = 500;

/** Make room for a layout, and draw the names of domains. */
function clear(canvas: HTMLCanvasElement, layout: Layout, width: number, known: Colours): void {
  const pen = canvas.getContext("2d");
  if (!pen) return;
  const scale = layout.height > 8000 ? 1 : window.devicePixelRatio || 1;
  canvas.width = Math.floor(width * scale);
  canvas.height = Math.floor(layout.height * scale);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${layout.height}px`;
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, layout.height);
  for (const head of layout.heads) {
    pen.textAlign = "left";
    pen.textBaseline = "alphabetic";
    pen.font = "600 14px system-ui, 'DejaVu Sans', sans-serif";
    pen.fillStyle = known.text;
    pen.fillText(head.text, 0, head.y + 20);
    const end = pen.measureText(head.text).width + 10;
    pen.font = "13px system-ui, 'DejaVu Sans', sans-serif";
    pen.fillStyle = known.soft;
    pen.fillText(head.note, end, head.y + 20);
  }
}

/** Draw nodes that are not as they were drawn; return the number of the first one that was not looked at. */
function draw(
  canvas: HTMLCanvasElement, layout: Layout, map: GpuMap, mode: string, drawn: Map<string, string>, known: Colours, first: number,
): number {
  const pen = canvas.getContext("2d");
  if (!pen) return layout.spots.length;
  const memory = new Map<string, string>();
  let at = first;
  for (let count = 0; at < layout.spots.length && count < AT_ONCE; at += 1) {
    const spot = layout.spots[at]!;
    const cells = cellsOf(spot.node, mode);
    if (drawn.get(spot.node.node) === cells) continue;
    drawn.set(spot.node.node, cells);
    count += 1;
    pen.clearRect(spot.x, spot.y, layout.blockWidth, layout.blockHeight);
    if (layout.isNamed) {
      pen.textAlign = "left";
      pen.textBaseline = "alphabetic";
      pen.font = "12px system-ui, 'DejaVu Sans', sans-serif";
      pen.fillStyle = spot.node.state === "Ready" ? known.text : known.bad;
      pen.fillText(fit(pen, spot.node.node, layout.blockWidth - 10), spot.x, spot.y + NAME_HEIGHT - 5);
    }
    drawCells(pen, layout, spot, cells, (cell) => {
      let colour = memory.get(cell);
      if (colour === undefined) memory.set(cell, colour = colourOf(cell, map, mode, known));
      return colour;
    }, mode === "free" ? "" : "#fff", known.bg);
  }
  return at;
}

/** Draw the cells of a node, with letters where there is room for them. */
function drawCells(
  pen: CanvasRenderingContext2D, layout: Layout, spot: Spot, cells: string, find: (cell: string) => string, ink: string, mark: string,
): void {
  const size = layout.cell - (layout.isNamed ? 2 : 1);
  let last = "";
  for (let at = 0; at < cells.length; at += 1) {
    const cell = cells[at] ?? ".";
    const [x, y] = placeOf(layout, spot, at);
    if (cell !== last) pen.fillStyle = find(cell);
    last = cell;
    pen.fillRect(x, y, size, size);
    if (layout.isNamed && cell !== "." && ink) {
      pen.fillStyle = ink;
      pen.font = "10px ui-monospace, 'DejaVu Sans Mono', monospace";
      pen.textAlign = "center";
      pen.textBaseline = "middle";
      pen.fillText(cell, x + size / 2, y + size / 2 + 0.5);
      last = "";
    } else if (cell === "!" || cell === "#") {
      pen.fillStyle = mark;
      pen.fillRect(x + size / 2 - 0.5, y, 1, size);
      last = "";
    }
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
  const columns: Column<MapNode>[] = [
    { name: "Node", cell: (row) => <Link href={to("node", row.node)}>{row.node}</Link> },
    { name: "Domain", cell: (row) => row.domains[topology] || "–" },
    { name: "State", cell: (row) => row.state },
    { name: "Model", cell: (row) => row.model },
    { name: "GPUs", isNumber: true, cell: (row) => row.gpus },
    { name: "Free", isNumber: true, cell: (row) => row.free },
    { name: "Who has them", isWide: true, cell: (row) => tellCells(map, cellsOf(row, mode), namesOf(map, mode)) },
  ];
  return (
    <Table label="Nodes with their GPUs" columns={columns} order={nodes.map((node) => node.node)}
      rows={new Map(nodes.map((node) => [node.node, node]))} total={nodes.length} empty="No node is like that." />
  );
}
