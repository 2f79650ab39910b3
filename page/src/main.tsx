import { render } from "preact";
import { signal } from "@preact/signals";
const n = signal(0);
function A(){ return <main><h1>koord</h1><button onClick={()=>{n.value++}}>n {n}</button><div style={{width: `${n.value*10+10}px`, background:"red"}}>b</div></main>; }
render(<A/>, document.getElementById("page")!);
