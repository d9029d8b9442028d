const build = (data) => {
  const boxes = data.names.map((name) => [name, h("input", { type: "checkbox", checked: data.on.includes(name) })]);
  const checked = () => boxes.filter(([, box]) => box.checked).map(([name]) => name);
  let saved = null;
  task.draft = () => ({ saved: checked() });
  draw(boxes.map(([name, box]) => h("label", { class: "field" }, box, name)),
    button("Save", () => { saved = checked(); finish(); }));
  return () => ({ saved });
};
