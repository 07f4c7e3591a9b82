export const boats = ["ketch", "sloop", "yawl"];
