const build = (data) => {
  let value = data.start, saved = null;
  const show = () => draw(h("p", {}, `${data.name}: ${value}`), button("+", () => { value++; show(); }),
    button("-", () => { value--; show(); }), button("OK", () => { saved = value; finish(); }));
  task.draft = () => ({ saved: value });
  show();
  return () => ({ saved });
};
